//! Connections: accepted within a limit, closed when they are silent, ended in order when the server stops.
//!
//! The server serves, drains (what runs goes on, new requests hear 503), and aborts what is left when the time to drain
//! is over.

use super::door::{Busy, Door};
use super::router::router;
use super::tls;
use crate::app::App;
use crate::config::Config;
#[cfg(feature = "kv-events")]
use crate::kv_events::Publisher;
use crate::limits::Limits;
use crate::models::{ModelEntry, Models};
use axum::Router;
use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

/// Time for streams to say that they are aborted.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// After a failure to accept, such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Connections that wait to be accepted, at most; systems have limits of their own.
const MOST_WAITING: u32 = 1 << 15;

/// Where the server is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It takes requests.
    Serving,
    /// It ends those that it has.
    Draining,
    /// It gives up those that it has.
    Aborting,
}

/// Why a server doesn't start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address can't be had.
    #[error("can't listen on {address}: {source}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        source: io::Error,
    },
    /// The address for events of prefix caches can't be had.
    #[cfg(feature = "kv-events")]
    #[error("can't publish events at `{endpoint}`: {reason}")]
    Events {
        /// The address.
        endpoint: String,
        /// What is wrong.
        reason: String,
    },
    /// The system gives no threads.
    #[error("can't start the server's threads: {0}")]
    Threads(io::Error),
    /// The first model can't be loaded; the reason names it.
    #[error("{0}")]
    Model(String),
    /// A file of certificates or keys.
    #[error("`{}` is no {expected}: {reason}", file.display())]
    Tls {
        /// The file.
        file: PathBuf,
        /// What it should hold.
        expected: &'static str,
        /// What is wrong.
        reason: String,
    },
}

/// A server that has its address and may begin.
pub struct Bound {
    listener: TcpListener,
    address: SocketAddr,
    tls: Option<TlsAcceptor>,
    app: Arc<App>,
    phase: watch::Sender<Phase>,
}

impl Bound {
    /// Takes the address. Connections wait until [`Bound::run`].
    ///
    /// # Errors
    /// The address is taken or not ours, or the TLS files are not as they should be.
    pub async fn bind(config: Config, models: Vec<ModelEntry>) -> Result<Self, ServeError> {
        let bind = |source| ServeError::Bind { address: config.address, source };
        let tls = config.tls.as_ref().map(tls::acceptor).transpose()?;
        let listener = listen(config.address, config.limits.connections).map_err(bind)?;
        let address = listener.local_addr().map_err(bind)?;
        let (phase, phases) = watch::channel(Phase::Serving);
        #[cfg_attr(not(feature = "kv-events"), expect(unused_mut, reason = "only events change it"))]
        let mut models = Models::new(models, &config, phases.clone());
        #[cfg(feature = "kv-events")]
        if let Some(wanted) = &config.kv_events {
            models.publish(Publisher::bind(wanted).await?);
        }
        Ok(Self { listener, address, tls, app: App::new(config, models, phases), phase })
    }

    /// Where it listens, with the port that the system chose where 0 was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Loads a model before anybody asks for it.
    ///
    /// # Errors
    /// Why it can't be loaded.
    pub async fn preload(&self, name: &str) -> Result<(), String> {
        self.app.models.get(name).await.map(|_| ()).map_err(|error| error.to_string())
    }

    /// Serves until `stop` says so, then drains.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let limits = self.app.config.limits.clone();
        let acceptor = Acceptor {
            router: router(self.app.clone()),
            tls: self.tls,
            places: Arc::new(Semaphore::new(limits.connections)),
            limits: limits.clone(),
            phase: self.phase.subscribe(),
        };
        let mut connections = JoinSet::new();
        {
            let mut stop = pin!(stop);
            loop {
                tokio::select! {
                    () = &mut stop => break,
                    () = acceptor.accept(&self.listener, &mut connections) => {}
                }
            }
        }
        tracing::info!(connections = connections.len(), "draining");
        self.phase.send_replace(Phase::Draining);
        let drained = async {
            let mut late = JoinSet::new();
            loop {
                tokio::select! {
                    ended = connections.join_next() => if ended.is_none() { return },
                    () = acceptor.accept(&self.listener, &mut late) => {}
                }
            }
        };
        if timeout(limits.drain_time, drained).await.is_err() {
            tracing::warn!("the time to drain is over; what is left is given up");
            self.phase.send_replace(Phase::Aborting);
            let ended = async { while connections.join_next().await.is_some() {} };
            // What doesn't end by now is cut off with the runtime.
            let _ = timeout(LAST_WORDS, ended).await;
        }
        // Who follows the prefix caches and is slow finds out by itself.
        #[cfg(feature = "kv-events")]
        let _ = timeout(LAST_WORDS, self.app.models.close()).await;
        tracing::info!("stopped");
    }
}

/// Takes an address. As many connections as may be open may wait to be accepted, as far as the system lets them: one that
/// comes when no more may is lost without a word, and its client waits in vain.
fn listen(address: SocketAddr, connections: usize) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Elsewhere it would let another process take the address, too.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(u32::try_from(connections).unwrap_or(u32::MAX).min(MOST_WAITING))
}

/// Waits until the server takes no new requests.
async fn draining(phase: &mut watch::Receiver<Phase>) {
    // Where the server is gone there is nothing to serve either.
    drop(phase.wait_for(|phase| *phase != Phase::Serving).await);
}

/// Takes connections.
struct Acceptor {
    router: Router,
    tls: Option<TlsAcceptor>,
    places: Arc<Semaphore>,
    limits: Arc<Limits>,
    phase: watch::Receiver<Phase>,
}

impl Acceptor {
    /// Accepts one connection, when there is a place for it. Ended ones are forgotten.
    async fn accept(&self, listener: &TcpListener, connections: &mut JoinSet<()>) {
        while connections.try_join_next().is_some() {}
        let place = self.places.clone().acquire_owned().await;
        match listener.accept().await {
            Ok((stream, _)) => {
                let (router, tls) = (self.router.clone(), self.tls.clone());
                let (limits, phase) = (self.limits.clone(), self.phase.clone());
                connections.spawn(async move {
                    converse(stream, tls, router, &limits, phase).await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "can't accept a connection");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn converse(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    router: Router,
    limits: &Arc<Limits>,
    phase: watch::Receiver<Phase>,
) {
    // A stream's small frames are not to wait for one another.
    let _ = stream.set_nodelay(true);
    match tls {
        None => exchange(stream, router, limits, phase).await,
        Some(tls) => {
            if let Ok(Ok(stream)) = timeout(limits.header_time, tls.accept(stream)).await {
                exchange(stream, router, limits, phase).await;
            }
        }
    }
}

/// The requests and answers of one connection.
async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    router: Router,
    limits: &Arc<Limits>,
    mut phase: watch::Receiver<Phase>,
) {
    let busy = Busy::default();
    let door = Door::new(stream, limits.clone(), busy.clone());
    let service = TowerToHyperService::new(router);
    let service = service_fn(move |mut request: Request<Incoming>| {
        // Kept with the answer's body, until all of it is sent.
        request.extensions_mut().insert(Arc::new(busy.begin()));
        service.call(request)
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        // The door has its own time for heads.
        .header_read_timeout(None)
        // A head comes with a block of what is behind it.
        .max_buf_size(limits.header_bytes + (8 << 10))
        .max_headers(limits.header_lines)
        .serve_connection(TokioIo::new(door), service);
    let mut connection = pin!(connection);
    // Who comes while the server drains is told so, and the connection ends with that answer.
    let is_late = *phase.borrow() != Phase::Serving;
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = draining(&mut phase), if !is_late => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended");
    }
}
