//! Steps of a plan by hand: sequences' rows, and the logits of each.

use gannet_ops::{
    Backend, Batch, BatchLimits, Budget, Length, Output, PageTable, Plan, Program, RecurrentUse, Row,
    RowKind, SequenceRows, State, StepId, TokenId, TokenSource, Want, WeightSource,
};

/// A plan over its state.
pub struct Steps {
    /// The compiled program.
    pub plan: Box<dyn Plan>,
    /// What its steps read and write.
    pub state: Box<dyn State>,
}

impl Steps {
    /// Uploads the weights of a program and compiles it for steps of up to `rows` rows and 8 sequences.
    ///
    /// # Panics
    /// Where the backend can't.
    pub fn new(
        backend: &dyn Backend,
        program: &Program,
        source: &dyn WeightSource,
        (budget, rows): (&Budget, usize),
    ) -> Self {
        let weights = backend.upload(source, &program.weights).expect("the weights can be uploaded");
        let state = backend.allocate(&program.state, budget).expect("the state can be allocated");
        let limits = BatchLimits { rows, sequences: 8, outputs: rows, context: rows };
        let plan = backend.compile(program, &weights, &limits).expect("the program can be compiled");
        Self { plan, state }
    }

    /// Runs a step; its number and the logits of its outputs.
    ///
    /// # Panics
    /// Where it fails.
    pub fn run(&mut self, batch: &Batch) -> (StepId, Vec<Vec<f32>>) {
        let step = self.plan.submit(batch, self.state.as_mut()).expect("the step runs");
        let output = self.plan.wait(step).expect("the step ends");
        let logits = output.outputs.into_iter().map(|result| result.logits.expect("they were asked for"));
        (step, logits.collect())
    }
}

/// Adds rows of one more sequence, which has `length` tokens; the logits of each are asked for.
pub fn add_rows(
    batch: &mut Batch,
    (length, tokens): (u32, &[u32]),
    tables: Vec<PageTable>,
    recurrent: Option<RecurrentUse>,
) {
    let (sequence, first) = (batch.sequences.len() as u32, batch.rows.len() as u32);
    let want = Want { logits: true, ..Want::default() };
    for (id, index) in tokens.iter().zip(length..) {
        batch.outputs.push(Output { row: batch.rows.len() as u32, want });
        batch.rows.push(Row {
            sequence,
            token: TokenSource::Known(TokenId(*id)),
            index,
            position: [index; 3],
            kind: RowKind::Prompt,
        });
    }
    batch.sequences.push(SequenceRows {
        rows: first..batch.rows.len() as u32,
        length: Length::Exact(length),
        tables,
        recurrent,
        sampler: None,
        adapter: None,
    });
}

/// Tokens of a prompt, the same for the same count.
pub fn tokens(count: usize, vocabulary: usize) -> Vec<u32> {
    (0..count as u32).map(|place| (place * place * 7 + place * 13 + 5) % vocabulary as u32).collect()
}
