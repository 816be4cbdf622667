//! The values of a step while it runs, and those that outlive its forward pass.

use crate::kernels::Crew;
use crate::kernels::expert_linear::ByExpert;
use crate::kernels::product::activations::{Activations, Terms};
use crate::kernels::product::pairs::PairRows;
use crate::kernels::route_experts::Routing;
use crate::memory::Buffer;
use crate::panels::PanelKind;
use gannet_ops::placement::Placement;
use gannet_ops::sampling::Draw;
use gannet_ops::step::{KeptIds, RowLogprobs, StepValues};
use gannet_ops::{Batch, BatchLimits, DeviceError, Element, Node, Op, Program, Rows, Value, ValueId};

/// All values of a program; the memory stays from step to step.
pub(super) struct Values {
    types: Vec<Value>,
    buffer_of: Vec<Option<usize>>,
    buffers: Vec<Buffer>,
    /// For each value of ids.
    ids: Vec<Vec<Option<u32>>>,
    /// Rows of each value in this step.
    rows: Vec<usize>,
    /// How closely codes stand for each value.
    terms: Vec<Terms>,
    /// The value that was made codes last, with them: products that read one value follow each other.
    codes: (Option<ValueId>, Activations),
    /// The same as bf16 numbers.
    pairs: (Option<ValueId>, PairRows),
    /// Memory for rows in the order of their experts.
    pub(super) sorted: ByExpert,
    /// Memory for the choice of experts.
    pub(super) routing: Routing,
}

impl Values {
    pub(super) fn new(program: &Program, limits: &BatchLimits) -> Result<Self, DeviceError> {
        // Ids are few and lie elsewhere.
        let Placement { buffer_of, bytes } = Placement::of_floats(program, limits);
        let what = || format!("values of program `{}`", program.name);
        Ok(Self {
            types: program.values.clone(),
            buffer_of,
            buffers: bytes.into_iter().map(|bytes| Buffer::zeroed(bytes, what)).collect::<Result<_, _>>()?,
            ids: vec![Vec::new(); program.values.len()],
            rows: vec![0; program.values.len()],
            terms: terms(program),
            codes: (None, Activations::default()),
            pairs: (None, PairRows::default()),
            sorted: ByExpert::default(),
            routing: Routing::default(),
        })
    }

    /// Bytes in memory.
    pub(super) fn bytes(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.resident_bytes(0..buffer.bytes())).sum()
    }

    pub(super) fn of(&self, id: ValueId) -> Value {
        self.types[id.0 as usize]
    }

    /// Rows of a value in this step.
    pub(super) fn rows(&self, id: ValueId) -> usize {
        self.rows[id.0 as usize]
    }

    /// `[rows, width]`.
    pub(super) fn numbers(&self, id: ValueId) -> &[f32] {
        let elements = self.rows(id) * self.of(id).width;
        &self.buffers[self.buffer(id)].as_slice()[..elements]
    }

    /// Brings a value into the form that panels of a kind are multiplied with, unless it is the one that was last.
    pub(super) fn encode(&mut self, crew: &mut Crew<'_>, id: ValueId, kind: PanelKind) {
        match kind {
            PanelKind::Codes if self.codes.0 != Some(id) => {
                let (_, mut codes) = std::mem::take(&mut self.codes);
                codes.fill(crew, self.numbers(id), self.of(id).width, self.terms[id.0 as usize]);
                self.codes = (Some(id), codes);
            }
            PanelKind::Pairs if self.pairs.0 != Some(id) => {
                let (_, mut pairs) = std::mem::take(&mut self.pairs);
                pairs.fill(crew, self.numbers(id), self.of(id).width);
                self.pairs = (Some(id), pairs);
            }
            PanelKind::Codes | PanelKind::Pairs => {}
        }
    }

    /// The codes of a value that was made them.
    pub(super) fn codes(&self, id: ValueId) -> &Activations {
        assert_eq!(self.codes.0, Some(id), "the value was made codes before it is multiplied");
        &self.codes.1
    }

    /// The bf16 numbers of a value that was made them.
    pub(super) fn pairs(&self, id: ValueId) -> &PairRows {
        assert_eq!(self.pairs.0, Some(id), "the value was made bf16 numbers before it is multiplied");
        &self.pairs.1
    }

    /// Takes a value's buffer out, to be written while others are read; it has room for so many rows.
    pub(super) fn take(&mut self, id: ValueId, rows: usize) -> Result<Buffer, DeviceError> {
        self.rows[id.0 as usize] = rows;
        self.codes.0 = self.codes.0.filter(|known| *known != id);
        self.pairs.0 = self.pairs.0.filter(|known| *known != id);
        let needed = rows * self.of(id).width * size_of::<f32>();
        let place = self.buffer(id);
        let buffer = std::mem::take(&mut self.buffers[place]);
        if buffer.bytes() >= needed {
            Ok(buffer)
        } else {
            Buffer::zeroed(needed, || "a captured value".to_owned())
        }
    }

    /// Puts a value's buffer back.
    pub(super) fn put(&mut self, id: ValueId, buffer: Buffer) {
        let place = self.buffer(id);
        self.buffers[place] = buffer;
    }

    fn buffer(&self, id: ValueId) -> usize {
        self.buffer_of[id.0 as usize].expect("the verifier saw numbers here")
    }
}

/// One term in general. Two for what a gate makes, where few numbers are far larger than their neighbours, and for what
/// the scores are made of, whose error nothing after it evens out: half of what codes change about a model's
/// distributions comes from these, for a fraction of its products.
fn terms(program: &Program) -> Vec<Terms> {
    let of = |value: &Value| if value.rows == Rows::Outputs { Terms::Two } else { Terms::One };
    let mut terms: Vec<Terms> = program.values.iter().map(of).collect();
    for node in &program.nodes {
        if matches!(node.op, Op::SiluGate | Op::GeluGate | Op::ClampedGate { .. }) {
            terms[node.outputs[0].0 as usize] = Terms::Two;
        }
    }
    terms
}

impl StepValues for Values {
    fn drawn(&self, _value: ValueId, _row: usize) -> Option<Draw> {
        None
    }

    fn logprobs(&self, _value: ValueId, _row: usize) -> RowLogprobs {
        RowLogprobs::Unknown
    }

    fn row(&self, value: ValueId, row: usize) -> &[f32] {
        let width = self.of(value).width;
        &self.numbers(value)[row * width..][..width]
    }

    fn ids(&self, value: ValueId) -> &[Option<u32>] {
        &self.ids[value.0 as usize]
    }

    fn ids_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>> {
        &mut self.ids[value.0 as usize]
    }
}

/// Copies of the values that sampling reads, while the plan's own serve the next step.
#[derive(Default)]
pub(super) struct KeptValues {
    numbers: Vec<(ValueId, usize, Vec<f32>)>,
    ids: KeptIds,
}

impl KeptValues {
    /// Bytes of its numbers.
    pub(super) fn bytes(&self) -> u64 {
        self.numbers.iter().map(|(_, _, numbers)| size_of_val(&numbers[..]) as u64).sum()
    }

    /// Keeps what the nodes from [`Program::sampling_start`] on read, and what the program returns of ids.
    pub(super) fn keep(&mut self, program: &Program, batch: &Batch, values: &Values) {
        self.ids.clear();
        let is_drawn = batch.outputs.iter().any(|output| output.want.token || output.want.logprobs.is_some());
        let mut kept = 0;
        let is_ids = |id: &ValueId| values.of(*id).element == Element::Id;
        let returned = program.outputs.iter().map(|(_, id)| *id).filter(is_ids);
        let later = program.nodes[program.sampling_start()..].iter();
        for id in later.flat_map(|node: &Node| node.inputs.iter().copied()).chain(returned) {
            match values.of(id).element {
                Element::Id => self.ids_mut(id).clone_from(&values.ids[id.0 as usize]),
                Element::F32 if is_drawn && !self.numbers[..kept].iter().any(|(known, ..)| *known == id) => {
                    self.keep_numbers(kept, id, values);
                    kept += 1;
                }
                Element::F32 => {}
            }
        }
        self.numbers.truncate(kept);
    }

    /// Keeps a value as number `place`, in the memory of the one that was there.
    fn keep_numbers(&mut self, place: usize, id: ValueId, values: &Values) {
        if self.numbers.len() == place {
            self.numbers.push((id, 0, Vec::new()));
        }
        let (known, width, data) = &mut self.numbers[place];
        (*known, *width) = (id, values.of(id).width);
        data.clear();
        data.extend_from_slice(values.numbers(id));
    }
}

impl StepValues for KeptValues {
    fn drawn(&self, _value: ValueId, _row: usize) -> Option<Draw> {
        None
    }

    fn logprobs(&self, _value: ValueId, _row: usize) -> RowLogprobs {
        RowLogprobs::Unknown
    }

    fn row(&self, value: ValueId, row: usize) -> &[f32] {
        let kept = self.numbers.iter().find(|(id, ..)| *id == value);
        let (_, width, data) = kept.expect("what sampling reads was kept");
        &data[row * width..][..*width]
    }

    fn ids(&self, value: ValueId) -> &[Option<u32>] {
        self.ids.of(value)
    }

    fn ids_mut(&mut self, value: ValueId) -> &mut Vec<Option<u32>> {
        self.ids.of_mut(value)
    }
}
