//! Who makes the masks of constrained rows, several at once: the team of a backend that computes on the host, between the
//! forward pass and its draws, or workers of the engine's own while a device computes.
//!
//! A constraint goes along with the question and comes back with the answer, so that nobody moves it on meanwhile.
//!
//! Knows no step and no sequence.

use crate::constraint::{Constraint, ConstraintError, MayEnd, ask};
use crate::request::RequestId;
use crossbeam_channel::{Receiver, Sender, unbounded};
use gannet_ops::Team;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Workers, at most.
const WORKERS_MAX: usize = 32;
/// Masks whose memory is kept for later ones.
const SPARE_MAX: usize = 1024;

/// How long a step waits for masks that workers make.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// As long as steps take in which all decode, within these bounds.
    pub(crate) bounds: (Duration, Duration),
    /// Where all of its rows wait, so that nobody else is held up but who wants to be heard.
    pub(crate) alone: Duration,
}

impl Patience {
    const USUAL: Patience = Patience {
        bounds: (Duration::from_millis(1), Duration::from_millis(20)),
        alone: Duration::from_millis(50),
    };
}

/// Which tokens may follow.
#[derive(Clone, Debug)]
pub(crate) struct Mask {
    /// Lowest id first in each word; the tokens that end an answer are not among them.
    pub(crate) bits: Arc<[u32]>,
    /// Whether any token may follow.
    pub(crate) goes_on: bool,
    pub(crate) may_end: MayEnd,
}

/// What is known of the mask of a sequence's next draw.
#[derive(Debug, Default)]
pub(crate) enum Masking {
    /// Nobody was asked.
    #[default]
    Unasked,
    /// Its constraint is with whoever makes it.
    Asked,
    /// It is there, or will never be.
    Answered(Result<Mask, ConstraintError>),
}

/// A mask to make.
pub(crate) struct Question {
    pub(crate) id: RequestId,
    pub(crate) constraint: Box<dyn Constraint>,
    /// Memory of the mask, which nobody else has.
    bits: Arc<[u32]>,
}

/// A mask that was made.
pub(crate) struct Answer {
    pub(crate) id: RequestId,
    pub(crate) constraint: Box<dyn Constraint>,
    pub(crate) mask: Result<Mask, ConstraintError>,
}

impl Question {
    fn answer(mut self) -> Answer {
        let Self { id, constraint, bits } = &mut self;
        let words = Arc::get_mut(bits).expect("nobody has a mask before it is made");
        words.fill(0);
        let may_end = ask(|| constraint.mask(words));
        let goes_on = words.iter().any(|word| *word != 0);
        let (id, bits) = (*id, Arc::clone(bits));
        Answer {
            id,
            constraint: self.constraint,
            mask: may_end.map(|may_end| Mask { bits, goes_on, may_end }),
        }
    }
}

/// Has masks made.
pub(crate) struct Masker {
    words: usize,
    questions: Sender<Question>,
    /// The other end of `questions`, for workers that start.
    asked: Receiver<Question>,
    answer: Sender<Answer>,
    /// What workers have made.
    pub(crate) answers: Receiver<Answer>,
    workers: usize,
    /// When a worker was asked last.
    pub(crate) last_asked: Instant,
    pub(crate) patience: Patience,
    spare: Vec<Arc<[u32]>>,
    /// The mask of a draw that is put off: it draws nothing.
    pub(crate) nothing: Arc<[u32]>,
}

impl Masker {
    /// Masks over so many tokens.
    pub(crate) fn new(vocabulary: usize) -> Self {
        let words = vocabulary.div_ceil(32);
        let (questions, asked) = unbounded();
        let (answer, answers) = unbounded();
        Self {
            words,
            questions,
            asked,
            answer,
            answers,
            workers: 0,
            last_asked: Instant::now(),
            patience: Patience::USUAL,
            spare: Vec::new(),
            nothing: vec![0; words].into(),
        }
    }

    /// Asks for the mask of a constraint where it stands.
    pub(crate) fn question(&mut self, id: RequestId, constraint: Box<dyn Constraint>) -> Question {
        let free = self.spare.iter_mut().position(|bits| Arc::get_mut(bits).is_some());
        let bits = free.map(|place| self.spare.swap_remove(place));
        Question { id, constraint, bits: bits.unwrap_or_else(|| vec![0; self.words].into()) }
    }

    /// The memory of a mask serves a later one, once no draw has it.
    pub(crate) fn reuse(&mut self, bits: Arc<[u32]>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(bits);
        }
    }

    /// Asks the workers. The answers come when they come.
    pub(crate) fn send(&mut self, questions: Vec<Question>) {
        self.last_asked = Instant::now();
        for question in questions {
            self.start_workers();
            let unheard = match self.workers {
                0 => Some(question),
                // This end keeps the channel open.
                _ => self.questions.send(question).err().map(|unheard| unheard.0),
            };
            if let Some(question) = unheard {
                let _ = self.answer.send(question.answer());
            }
        }
    }

    /// Starts the workers with the first question. Where the system has no thread left, those that are there do the work.
    fn start_workers(&mut self) {
        if self.workers > 0 {
            return;
        }
        let wanted = thread::available_parallelism().map_or(1, |count| count.get().min(WORKERS_MAX));
        for number in 0..wanted {
            let (asked, answer) = (self.asked.clone(), self.answer.clone());
            let thread = thread::Builder::new().name(format!("gannet-mask-{number}"));
            let work = move || {
                // They end with the engine; who is in the middle of a mask finds nobody who hears of it.
                while let Ok(question) = asked.recv() {
                    let _ = answer.send(question.answer());
                }
            };
            if thread.spawn(work).is_err() {
                return;
            }
            self.workers += 1;
        }
    }
}

/// Has a team answer, and waits for all of it.
pub(crate) fn answer_together(team: &dyn Team, questions: Vec<Question>) -> Vec<Answer> {
    let places: Vec<Mutex<(Option<Question>, Option<Answer>)>> =
        questions.into_iter().map(|question| Mutex::new((Some(question), None))).collect();
    team.each(places.len(), &|place| {
        let mut place = places[place].lock().unwrap_or_else(PoisonError::into_inner);
        place.1 = place.0.take().map(Question::answer);
    });
    let answer = |place: Mutex<(Option<Question>, Option<Answer>)>| {
        place.into_inner().unwrap_or_else(PoisonError::into_inner).1.expect("the team answers each")
    };
    places.into_iter().map(answer).collect()
}
