//! A compiled program: its kernels loaded, its values given places on the device, its steps launched node by node.
//!
//! `submit` copies the step's lists to the device, launches every node on the one stream and returns; only what the host
//! was asked for is waited for. Where every row of a step wants its likeliest token, `sample` takes the tokens that the
//! device found; otherwise the scores come to the host, where `ops::sampling` draws.

mod attention;
mod formats;
mod kept;
mod launches;
mod maps;
mod metadata;
mod products;
mod ropes;
mod work;

use crate::backend::{Device, Need};
use crate::driver::{Address, DeviceBuffer, Kernel, Launch, Mark, Properties, TensorMap};
use crate::error::{unknown, unsupported};
use crate::jit::FEW_ROWS;
use crate::number::Number;
use crate::state::{CudaState, LayerPages};
use crate::weights::{CudaWeights, Weight};
use gannet_ops::placement::{LastReader, Placement, last_readers, rows_at_most};
use gannet_ops::sampling::passes::PlainPasses;
use gannet_ops::sampling::{Drawer, SampleRow, Workspace};
use gannet_ops::step::PendingStep;
use gannet_ops::{
    Batch, BatchLimits, DeviceError, Element, InputKind, Interrupter, Node, NodeObserver, NodeTime, Op,
    OutputKind, Plan, PlanBytes, Program, Rows, SampleRows, State, StateEntry, StateId, StepId, StepOutput,
    TokenSource, ValueId, Weights, verify,
};
use kept::Kept;
use launches::{Call, Frame};
use maps::TensorMaps;
use metadata::{Lists, Metadata};
use ropes::Ropes;
use std::collections::HashMap;
use std::sync::Arc;
use work::Shape;

/// A program that is ready to run.
pub(crate) struct CudaPlan {
    device: Arc<Device>,
    program: Program,
    weights: Vec<Arc<Weight>>,
    limits: BatchLimits,
    formats: Vec<Number>,
    values: Values,
    ropes: Ropes,
    maps: TensorMaps,
    /// The ways in which layers attend.
    ways: Vec<Shape>,
    /// All that any step may launch.
    kernels: HashMap<Need, Kernel>,
    /// The scores that tokens are drawn from.
    sampled: Option<ValueId>,
    metadata: Metadata,
    /// The lists of the present step.
    lists: DeviceBuffer,
    /// For a value that a product reads in its own format.
    rounded: DeviceBuffer,
    /// For the partial sums of rows that are split over their keys.
    partials: DeviceBuffer,
    pending: HashMap<StepId, PendingStep<Kept>>,
    /// Steps that were waited for, and outputs that came back, whose memory the next ones use.
    spare: Vec<PendingStep<Kept>>,
    spare_outputs: Vec<StepOutput>,
    workspace: Workspace,
    interrupter: Interrupter,
}

/// Where values lie while a step runs.
struct Values {
    buffer_of: Vec<Option<usize>>,
    buffers: Vec<DeviceBuffer>,
    /// Those that outlive the forward pass, which lie with their step.
    kept: Vec<ValueId>,
}

/// What a step is asked for beside its result.
enum Watch<'a, 'b> {
    Nothing,
    /// What each node makes.
    Values(&'a mut NodeObserver<'b>),
    /// A moment before each node.
    Times(&'a mut Vec<Mark>),
}

impl CudaPlan {
    pub(crate) fn new(
        device: &Arc<Device>,
        program: &Program,
        weights: &dyn Weights,
        limits: &BatchLimits,
    ) -> Result<Self, DeviceError> {
        verify(program).map_err(|error| unsupported(&program.name, error.to_string()))?;
        check_inputs(program)?;
        let ours = weights.as_any().downcast_ref::<CudaWeights>();
        let ours =
            ours.ok_or_else(|| unsupported(&program.name, "the weights were uploaded to another backend"))?;
        let weights: Vec<Arc<Weight>> =
            program.weights.iter().map(|used| ours.get(used)).collect::<Result<_, _>>()?;
        let formats = formats::choose(program, &weights);
        let driver = &device.driver;
        let values = Values::new(device, program, (limits, &formats))?;
        let rounded = DeviceBuffer::new(driver, rounded_bytes(program, limits, (&weights, &formats)))?;
        let parts = Parts { program, weights: &weights, formats: &formats, limits };
        Ok(Self {
            device: Arc::clone(device),
            kernels: parts.load(device)?,
            maps: TensorMaps::new(driver, parts.maps(&values, rounded.address()))?,
            ropes: Ropes::new(program, driver)?,
            ways: attention::ways(driver.properties(), program),
            sampled: sampled(program),
            values,
            lists: DeviceBuffer::new(driver, 0)?,
            partials: DeviceBuffer::new(driver, 0)?,
            rounded,
            program: program.clone(),
            weights,
            limits: *limits,
            formats,
            metadata: Metadata::default(),
            pending: HashMap::new(),
            spare: Vec::new(),
            spare_outputs: Vec::new(),
            workspace: Workspace::default(),
            interrupter: Interrupter::default(),
        })
    }

    fn run(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        watch: &mut Watch<'_, '_>,
    ) -> Result<StepId, DeviceError> {
        batch.check(&self.program.state)?;
        self.check_limits(batch)?;
        let state = CudaState::ours(state, &self.program)?;
        let mut pending = self.spare.pop().unwrap_or_default();
        pending.begin(batch, &state.steps)?;
        let mut kept = std::mem::take(&mut pending.values);
        self.prepare(pending.batch(), state, &mut kept)?;
        self.forward(pending.batch(), state, &kept, watch)?;
        let step = self.device.next_step();
        self.fetch_wanted(batch, &mut kept)?;
        let space = self.spare_outputs.pop().unwrap_or_default();
        pending.answer(&self.program, &kept, space)?;
        pending.values = kept;
        state.steps.remember(step, batch, ());
        self.pending.insert(step, pending);
        Ok(step)
    }

    /// Brings to the device what the step's kernels read of the batch, and makes room for what outlives them.
    fn prepare(&mut self, batch: &Batch, state: &CudaState, kept: &mut Kept) -> Result<(), DeviceError> {
        self.metadata.fill(batch, vocabulary(&self.program), (&self.program.state, state), &self.ways)?;
        let driver = Arc::clone(&self.device.driver);
        self.partials.grow(self.metadata.partials().saturating_mul(partial_bytes(&self.program)))?;
        self.lists.grow(self.metadata.bytes().len())?;
        driver.upload(self.lists.address(), self.metadata.bytes())?;
        if let Some(id) = self.program.input(InputKind::Embeddings) {
            let rows = embeddings(batch, self.program.value(id).width)?;
            driver.upload(self.values.address(id, kept), &Number::F32.encode(&rows))?;
        } else if let Some(row) =
            batch.rows.iter().position(|row| matches!(row.token, TokenSource::Embedding(_)))
        {
            return Err(unknown("id of row", row as u64, "the program reads no embeddings"));
        }
        let bytes =
            |id: &ValueId| (*id, batch.outputs.len() * self.program.value(*id).width * size_of::<f32>());
        let values: Vec<(ValueId, usize)> = self.values.kept.iter().map(bytes).collect();
        Ok(kept.prepare(&driver, &values, batch.outputs.len())?)
    }

    /// Launches the nodes before sampling.
    fn forward(
        &self,
        batch: &Batch,
        state: &CudaState,
        kept: &Kept,
        watch: &mut Watch<'_, '_>,
    ) -> Result<(), DeviceError> {
        let frame = Frame {
            program: &self.program,
            weights: &self.weights,
            formats: &self.formats,
            rows: batch.rows.len(),
            outputs: batch.outputs.len(),
            values: &|id| self.values.address(id, kept),
            pages: &|id| state.layer(id),
            lists: Lists { metadata: &self.metadata, start: self.lists.address() },
            ropes: &self.ropes,
            device: self.device.driver.properties(),
            limits: &self.limits,
            ways: &self.ways,
            maps: &self.maps,
            partials: self.partials.address(),
            rounded: self.rounded.address(),
        };
        for (place, node) in self.program.nodes[..self.program.sampling_start()].iter().enumerate() {
            if self.interrupter.take() {
                return Err(DeviceError::Interrupted);
            }
            if let Watch::Times(marks) = watch {
                marks.push(self.device.driver.mark()?);
            }
            frame.calls(node)?.iter().try_for_each(|call| self.launch(call))?;
            if let Watch::Values(observe) = watch {
                self.show(place, node, (batch, kept), observe)?;
            }
        }
        if let Watch::Times(marks) = watch {
            marks.push(self.device.driver.mark()?);
        }
        if let Some(logits) = self.sampled
            && batch.outputs.iter().any(|output| output.want.token)
        {
            self.launch(&frame.argmax(logits, kept.tokens()))?;
        }
        Ok(())
    }

    fn launch(&self, call: &Call) -> Result<(), DeviceError> {
        let kernel = self.kernels.get(&call.need).expect("the plan loaded all that a step may launch");
        let Call { grid, block, shared_bytes, .. } = *call;
        let launch = Launch { kernel, grid, block, shared_bytes, arguments: &call.arguments };
        Ok(self.device.driver.launch(&launch)?)
    }

    /// Shows what a node made.
    fn show(
        &self,
        place: usize,
        node: &Node,
        (batch, kept): (&Batch, &Kept),
        observe: &mut NodeObserver<'_>,
    ) -> Result<(), DeviceError> {
        let fetch = |id: &ValueId| {
            let (value, format) = (self.program.value(*id), self.formats[id.0 as usize]);
            let rows = if value.rows == Rows::Outputs { batch.outputs.len() } else { batch.rows.len() };
            let mut bytes = vec![0; rows * value.width * format.bytes()];
            if rows > 0 {
                self.device.driver.download(&mut bytes, self.values.address(*id, kept))?;
            }
            Ok(format.decode(&bytes))
        };
        let shown: Vec<Vec<f32>> = node.outputs.iter().map(fetch).collect::<Result<_, DeviceError>>()?;
        observe(place, node, &shown.iter().map(Vec::as_slice).collect::<Vec<_>>());
        Ok(())
    }

    /// Copies to the host what is asked for and known before sampling.
    fn fetch_wanted(&self, batch: &Batch, kept: &mut Kept) -> Result<(), DeviceError> {
        let wants =
            |wanted: fn(&gannet_ops::Want) -> bool| batch.outputs.iter().any(|output| wanted(&output.want));
        let is_drawn = wants(|want| want.token);
        let logits = self.sampled.or(self.program.output(OutputKind::Logits));
        if let Some(id) = logits
            && (wants(|want| want.logits) || (!is_drawn && wants(|want| want.logprobs.is_some())))
        {
            self.fetch(id, batch, kept)?;
        }
        // The program's own scores are what is answered, where it returns them beside those that are drawn from.
        if let Some(id) = self.program.output(OutputKind::Logits)
            && wants(|want| want.logits || want.logprobs.is_some())
        {
            self.fetch(id, batch, kept)?;
        }
        if let Some(id) = self.program.output(OutputKind::Hidden)
            && wants(|want| want.hidden)
        {
            self.fetch(id, batch, kept)?;
        }
        Ok(())
    }

    fn fetch(&self, id: ValueId, batch: &Batch, kept: &mut Kept) -> Result<(), DeviceError> {
        let size = (batch.outputs.len(), self.program.value(id).width);
        Ok(kept.fetch(&*self.device.driver, id, size)?)
    }

    fn check_limits(&self, batch: &Batch) -> Result<(), DeviceError> {
        let BatchLimits { rows, sequences, outputs, .. } = self.limits;
        let found = [
            ("row", batch.rows.len(), rows),
            ("sequence", batch.sequences.len(), sequences),
            ("output", batch.outputs.len(), outputs),
        ];
        match found.into_iter().find(|(_, found, most)| found > most) {
            Some((what, found, most)) => Err(unknown(
                what,
                found as u64 - 1,
                format!("the plan was compiled for at most {most} a batch"),
            )),
            None => Ok(()),
        }
    }
}

impl Plan for CudaPlan {
    fn submit(&mut self, batch: &Batch, state: &mut dyn State) -> Result<StepId, DeviceError> {
        self.run(batch, state, &mut Watch::Nothing)
    }

    fn submit_traced(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        observe: &mut NodeObserver<'_>,
    ) -> Result<StepId, DeviceError> {
        self.run(batch, state, &mut Watch::Values(observe))
    }

    fn submit_timed(
        &mut self,
        batch: &Batch,
        state: &mut dyn State,
        times: &mut Vec<NodeTime>,
    ) -> Result<StepId, DeviceError> {
        let mut marks = Vec::new();
        let step = self.run(batch, state, &mut Watch::Times(&mut marks))?;
        times.clear();
        let moments = self.device.driver.times(marks)?;
        times.extend(moments.windows(2).map(|pair| NodeTime { start: pair[0], end: pair[1] }));
        Ok(step)
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        if self.interrupter.take() {
            return Err(DeviceError::Interrupted);
        }
        let state = CudaState::ours(state, &self.program)?;
        let pending = self.pending.get_mut(&step).ok_or_else(|| not_pending(step))?;
        if let Some(logits) = self.sampled {
            let outputs = pending.batch().outputs.len();
            let are_scores_read = pending.batch().outputs.iter().any(|output| output.want.logprobs.is_some());
            let (driver, width) = (&*self.device.driver, self.program.value(logits).width);
            if rows.rows.iter().all(SampleRow::is_plain) {
                pending.values.take_tokens(driver, outputs)?;
            }
            if are_scores_read || !rows.rows.iter().all(SampleRow::is_plain) {
                pending.values.fetch(driver, logits, (outputs, width))?;
            }
        }
        let mut drawer = Drawer { passes: &mut PlainPasses, workspace: &mut self.workspace };
        let with = (&mut state.histories[..], &mut drawer);
        let program = &self.program;
        state.steps.get_mut(step)?.decide(|sampled| pending.sample(program, rows, with, sampled))
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        let pending = self.pending.get(&step).ok_or_else(|| not_pending(step))?;
        pending.check_finished(step)?;
        self.device.driver.synchronize()?;
        let mut finished = self.pending.remove(&step).expect("it was found above");
        let output = finished.take_output();
        self.spare.push(finished);
        Ok(output)
    }

    fn reuse(&mut self, output: StepOutput) {
        self.spare_outputs.push(output);
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn bytes(&self) -> PlanBytes {
        let own = [&self.lists, &self.rounded, &self.partials];
        let scratch = self.values.buffers.iter().chain(own).map(|buffer| buffer.bytes() as u64).sum();
        PlanBytes { scratch, graphs: 0 }
    }
}

impl Values {
    fn new(
        device: &Arc<Device>,
        program: &Program,
        (limits, formats): (&BatchLimits, &[Number]),
    ) -> Result<Self, DeviceError> {
        let readers = last_readers(program);
        let is_kept = |id: &ValueId| {
            let (value, reader) = (program.value(*id), readers[id.0 as usize]);
            value.element == Element::F32 && reader == LastReader::Step && value.rows == Rows::Outputs
        };
        let ids = (0..program.values.len() as u32).map(ValueId);
        let kept: Vec<ValueId> = ids.filter(is_kept).collect();
        let row_bytes = |id: ValueId| {
            let value = program.value(id);
            let lies_here = value.element == Element::F32 && !kept.contains(&id);
            lies_here.then(|| value.width.saturating_mul(formats[id.0 as usize].bytes()))
        };
        let Placement { buffer_of, bytes } = Placement::new(program, limits, &row_bytes);
        let buffers = bytes.into_iter().map(|bytes| DeviceBuffer::new(&device.driver, bytes));
        Ok(Self { buffer_of, buffers: buffers.collect::<Result<_, _>>()?, kept })
    }

    fn address(&self, id: ValueId, kept: &Kept) -> Address {
        match self.buffer_of[id.0 as usize] {
            Some(buffer) => self.buffers[buffer].address(),
            // Ids lie in the step's lists.
            None => kept.address(id).unwrap_or(Address::NONE),
        }
    }
}

/// What a plan is made of before it has any memory of its own.
struct Parts<'a> {
    program: &'a Program,
    weights: &'a [Arc<Weight>],
    formats: &'a [Number],
    limits: &'a BatchLimits,
}

impl Parts<'_> {
    /// Loads every kernel that a step may launch: those of a step of one row, and those of products with more.
    fn load(&self, device: &Device) -> Result<HashMap<Need, Kernel>, DeviceError> {
        let Self { program, weights, formats, limits } = *self;
        let properties = device.driver.properties();
        let ways = attention::ways(properties, program);
        let metadata = Metadata::nowhere(program.state.groups.len(), ways.len());
        let pages = |id: StateId| match &program.state.entries[id.0 as usize] {
            StateEntry::Paged(layout) => LayerPages::nowhere(layout),
            StateEntry::Recurrent(_) => unreachable!("the verifier saw a paged entry here"),
        };
        let frame = Frame {
            program,
            weights,
            formats,
            rows: 1,
            outputs: 1,
            values: &|_| Address::NONE,
            pages: &pages,
            lists: Lists { metadata: &metadata, start: Address::NONE },
            ropes: &Ropes::nowhere(),
            device: properties,
            limits,
            ways: &ways,
            maps: &TensorMaps::nowhere(),
            partials: Address::NONE,
            rounded: Address::NONE,
        };
        let mut needs: Vec<Need> = Vec::new();
        for node in &program.nodes[..program.sampling_start()] {
            needs.extend(frame.calls(node)?.into_iter().map(|call| call.need));
            needs.extend(self.product_needs(properties, node));
        }
        needs.extend(sampled(program).map(|logits| frame.argmax(logits, Address::NONE).need));
        needs.sort_unstable();
        needs.dedup();
        // All at once, so that what has to be compiled is compiled in parallel.
        let kernels = device.kernels(&needs)?;
        Ok(needs.into_iter().zip(kernels).collect())
    }

    fn product_needs(&self, device: &Properties, node: &Node) -> Vec<Need> {
        let Op::Linear { weight, .. } = node.op else { return Vec::new() };
        let matrix = &self.weights[weight.0 as usize];
        let rows = rows_at_most(self.program.value(node.inputs[0]).rows, self.limits);
        products::all(device, matrix.format, rows, [matrix.shape[0], matrix.shape[1]])
    }

    /// The maps by which products read their rows.
    fn maps(&self, values: &Values, rounded: Address) -> Vec<TensorMap> {
        let mut maps = Vec::new();
        for node in &self.program.nodes {
            let Op::Linear { weight, .. } = node.op else { continue };
            let (x, format) = (node.inputs[0], self.weights[weight.0 as usize].format);
            let value = self.program.value(x);
            if !products::is_mapped(format, value.width) {
                continue;
            }
            let lies_as_read = self.formats[x.0 as usize] == format;
            let address = if lies_as_read { values.address(x, &Kept::default()) } else { rounded };
            let rows = rows_at_most(value.rows, self.limits);
            let columns = value.width;
            maps.extend(FEW_ROWS.map(|box_rows| TensorMap { address, rows, columns, box_rows }));
        }
        maps
    }
}

/// The scores that tokens are drawn from.
fn sampled(program: &Program) -> Option<ValueId> {
    program.nodes.iter().find(|node| node.op == Op::Sample).map(|node| node.inputs[0])
}

/// Bytes of the partial sums of one row and split, for the layer with the most.
fn partial_bytes(program: &Program) -> usize {
    let bytes = |node: &Node| {
        let Op::Attention(op) = &node.op else { return 0 };
        let StateEntry::Paged(layout) = &program.state.entries[op.state.0 as usize] else { return 0 };
        // A sum for each column, the largest score and the sum of the weights.
        op.heads * (layout.value_dim + 2) * size_of::<f32>()
    };
    program.nodes.iter().map(bytes).max().unwrap_or(0)
}

/// What a program may read before its first node.
fn check_inputs(program: &Program) -> Result<(), DeviceError> {
    let handed = program.inputs.iter().any(|(kind, _)| matches!(kind, InputKind::Handed(_)));
    if handed {
        let reason =
            format!("values of earlier steps have no place yet, and program `{}` reads one", program.name);
        return Err(unsupported("gather_rows", reason));
    }
    Ok(())
}

/// Bytes of the largest value that a product reads in another format than it has.
fn rounded_bytes(
    program: &Program,
    limits: &BatchLimits,
    (weights, formats): (&[Arc<Weight>], &[Number]),
) -> usize {
    let bytes = |node: &Node| {
        let Op::Linear { weight, .. } = node.op else { return 0 };
        let (x, format) = (node.inputs[0], weights[weight.0 as usize].format);
        let value = program.value(x);
        let is_other = formats[x.0 as usize] != format;
        if is_other { rows_at_most(value.rows, limits) * value.width * format.bytes() } else { 0 }
    };
    program.nodes.iter().map(bytes).max().unwrap_or(0)
}

/// Entries of the table that ids are looked up in; without one, any id goes.
fn vocabulary(program: &Program) -> usize {
    let size = |node: &Node| {
        let Op::Embed { weight } = node.op else { return None };
        Some(program.weight(weight).shape[0])
    };
    program.nodes.iter().find_map(size).unwrap_or(usize::MAX)
}

/// The embedding of each row that brings one; zeros for the others.
fn embeddings(batch: &Batch, width: usize) -> Result<Vec<f32>, DeviceError> {
    let brought = batch.embeddings.len() / width;
    let mut rows = vec![0.0; batch.rows.len() * width];
    for (row, out) in batch.rows.iter().zip(rows.chunks_exact_mut(width)) {
        if let TokenSource::Embedding(number) = row.token {
            let found = batch.embeddings.chunks_exact(width).nth(number as usize);
            let missing = || unknown("embedding", number, format!("the batch brings {brought} of {width}"));
            out.copy_from_slice(found.ok_or_else(missing)?);
        }
    }
    Ok(rows)
}

fn not_pending(step: StepId) -> DeviceError {
    unknown("step", step.0, "it was not submitted to this plan, or was waited for")
}
