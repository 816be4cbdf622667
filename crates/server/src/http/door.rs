//! The door of a connection: a request's head is read whole, within its limits, and checked (`head`) before HTTP's own
//! parser sees it; what is refused here is answered here, in the protocol's form.
//!
//! Behind a head so many bytes pass as it says, then the next head is read. Behind one of a body in chunks everything
//! passes, since the connection ends with its answer. A door that has refused tells its reader that nothing more comes, and
//! says why when it is shut.

use super::head::{Framing, check};
use crate::error::ApiError;
use crate::limits::Limits;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Bytes that are read at once while a head comes.
const BLOCK_BYTES: usize = 4096;
/// After a refusal, time for what the client still sends, so that it hears why before the connection breaks.
const LINGER: Duration = Duration::from_secs(1);

/// A stream of checked requests.
pub(super) struct Door<S> {
    stream: S,
    limits: Arc<Limits>,
    busy: Busy,
    /// Read, and not handed on yet.
    input: Vec<u8>,
    /// Bytes that may pass before the next head.
    passing: u64,
    timer: Option<Pin<Box<Sleep>>>,
    refusal: Option<Refusal>,
}

/// An answer of the door's own.
struct Refusal {
    answer: Vec<u8>,
    sent: usize,
}

/// Requests of a connection that are being answered: while there are any, no head is waited for.
#[derive(Clone, Debug, Default)]
pub(super) struct Busy(Arc<Mutex<Answers>>);

#[derive(Debug, Default)]
struct Answers {
    count: usize,
    /// Who waits for the end of the last one.
    waiter: Option<Waker>,
}

/// A request that is being answered, until this is dropped.
#[derive(Debug)]
pub(crate) struct Answered(Busy);

impl Busy {
    pub(super) fn begin(&self) -> Answered {
        self.lock().count += 1;
        Answered(self.clone())
    }

    /// Waits until nothing is answered.
    fn poll_idle(&self, context: &Context<'_>) -> Poll<()> {
        let mut answers = self.lock();
        if answers.count == 0 {
            return Poll::Ready(());
        }
        answers.waiter = Some(context.waker().clone());
        Poll::Pending
    }

    fn lock(&self) -> MutexGuard<'_, Answers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Answered {
    fn drop(&mut self) {
        let mut answers = self.0.lock();
        answers.count -= 1;
        if answers.count == 0
            && let Some(waiter) = answers.waiter.take()
        {
            waiter.wake();
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Door<S> {
    pub(super) fn new(stream: S, limits: Arc<Limits>, busy: Busy) -> Self {
        Self { stream, limits, busy, input: Vec::new(), passing: 0, timer: None, refusal: None }
    }

    /// Reads until a head is there, the client is gone, or something is refused.
    fn poll_head(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Head>> {
        let mut searched = 0;
        loop {
            while self.input.starts_with(b"\r\n") {
                self.input.drain(..2);
            }
            if let Some(end) = end_of_head(&self.input, searched) {
                self.timer = None;
                return Poll::Ready(Ok(self.take_head(end)));
            }
            if self.input.len() > self.limits.header_bytes {
                let limit = self.limits.header_bytes;
                return Poll::Ready(Ok(self.refuse(&ApiError::HeadTooLarge { limit })));
            }
            searched = self.input.len();
            let mut block = [0; BLOCK_BYTES];
            let mut read = ReadBuf::new(&mut block);
            match Pin::new(&mut self.stream).poll_read(context, &mut read) {
                Poll::Ready(result) => result?,
                Poll::Pending => return self.poll_timer(context).map(Ok),
            }
            if read.filled().is_empty() {
                return Poll::Ready(Ok(Head::Gone));
            }
            self.input.extend_from_slice(read.filled());
        }
    }

    fn take_head(&mut self, end: usize) -> Head {
        match check(&self.input[..end], self.limits.header_lines) {
            Ok(Framing::Length(bytes)) => self.passing = bytes.saturating_add(end as u64),
            Ok(Framing::Chunked) => self.passing = u64::MAX,
            Err(error) => return self.refuse(&error),
        }
        Head::There
    }

    /// Whether the time for a head is over; none runs while an answer is made.
    fn poll_timer(&mut self, context: &mut Context<'_>) -> Poll<Head> {
        if self.busy.poll_idle(context).is_pending() {
            self.timer = None;
            return Poll::Pending;
        }
        let time = self.limits.header_time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        ready!(timer.as_mut().poll(context));
        if self.input.is_empty() {
            return Poll::Ready(Head::Gone);
        }
        Poll::Ready(self.refuse(&ApiError::HeadTooSlow { limit: time }))
    }

    fn refuse(&mut self, error: &ApiError) -> Head {
        tracing::debug!(%error, "a head was refused");
        let (status, body) = (error.status(), error.body().to_string());
        let answer = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
        self.refusal = Some(Refusal { answer: answer.into_bytes(), sent: 0 });
        self.timer = None;
        Head::Gone
    }

    /// Throws away what a refused client still sends, for a while.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(LINGER)));
        if timer.as_mut().poll(context).is_ready() {
            return Poll::Ready(());
        }
        let mut block = [0; BLOCK_BYTES];
        loop {
            let mut read = ReadBuf::new(&mut block);
            let result = ready!(Pin::new(&mut self.stream).poll_read(context, &mut read));
            if result.is_err() || read.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    }
}

/// What comes next on a connection.
enum Head {
    There,
    /// Nothing.
    Gone,
}

/// Where a head ends, its empty line included, or its first line without a carriage return, behind which nothing is looked
/// for; what was searched before isn't again.
fn end_of_head(input: &[u8], searched: usize) -> Option<usize> {
    let ends_with = |end: usize, mark: &[u8]| input[..end].ends_with(mark);
    let is_end = |end: &usize| ends_with(*end, b"\r\n\r\n") || !ends_with(*end, b"\r\n");
    let lines = input[searched..].iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    lines.map(|(place, _)| searched + place + 1).find(is_end)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Door<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let door = &mut *self;
        if door.passing == 0 && door.refusal.is_none() {
            match ready!(door.poll_head(context))? {
                Head::There => {}
                Head::Gone if door.refusal.is_none() => return Poll::Ready(Ok(())),
                Head::Gone => {}
            }
        }
        if door.refusal.is_some() {
            // An answer that is being made is not cut off by what comes behind its request.
            return door.busy.poll_idle(context).map(Ok);
        }
        let most = usize::try_from(door.passing).unwrap_or(usize::MAX).min(buffer.remaining());
        let count = if door.input.is_empty() {
            let mut block = [0; BLOCK_BYTES];
            let mut read = ReadBuf::new(&mut block[..most.min(BLOCK_BYTES)]);
            ready!(Pin::new(&mut door.stream).poll_read(context, &mut read))?;
            buffer.put_slice(read.filled());
            read.filled().len()
        } else {
            let count = most.min(door.input.len());
            buffer.put_slice(&door.input[..count]);
            door.input.drain(..count);
            count
        };
        if door.passing != u64::MAX {
            door.passing -= count as u64;
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Door<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let door = &mut *self;
        if let Some(Refusal { answer, sent }) = &mut door.refusal {
            while *sent < answer.len() {
                let count = ready!(Pin::new(&mut door.stream).poll_write(context, &answer[*sent..]))?;
                if count == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                *sent += count;
            }
        }
        ready!(Pin::new(&mut door.stream).poll_shutdown(context))?;
        if door.refusal.is_some() {
            ready!(door.poll_linger(context));
        }
        Poll::Ready(Ok(()))
    }
}
