//! A compiled program: its kernels loaded, its values given places on the device, its steps launched.
//!
//! `submit` copies the step's lists to the device, replays the graph of so many rows, or launches every node, on the one stream
//! and returns; only what the host was asked for is waited for. `sample` begins the draws, and `wait` brings their tokens; a step
//! between takes them from the device.

mod attention;
mod draws;
mod experts;
mod folds;
mod formats;
mod graphs;
pub(crate) mod jobs;
pub(crate) mod kept;
mod launches;
mod maps;
mod matrices;
mod metadata;
mod multiply;
mod parts;
mod products;
mod projections;
mod recurrent;
mod ropes;
mod routers;
mod sampling;
mod values;
mod work;

use crate::backend::{Device, Need};
use crate::driver::{DeviceBuffer, Kernel, Launch, Mark};
use crate::error::{unknown, unsupported};
use crate::number::Number;
use crate::state::CudaState;
use crate::units::Uses;
use crate::weights::CudaWeights;
use draws::Drawers;
use experts::Groups;
use folds::Folds;
use gannet_ops::numerics::VOCABULARY_PARTITION;
use gannet_ops::step::PendingStep;
use gannet_ops::{
    Batch, BatchLimits, DeviceError, DeviceUse, Element, InputKind, Interrupter, Node, NodeObserver,
    NodeTime, Op, OutputKind, Plan, PlanBytes, Program, Readiness, Rows, SampleRows, State, StepId,
    StepOutput, TokenSource, ValueId, Weights, unfuse, verify,
};
use kept::Kept;
use launches::{Call, Frame};
use maps::TensorMaps;
use matrices::Matrices;
use metadata::{Fit, Lists, Metadata};
use parts::Parts;
use ropes::Ropes;
use sampling::Flight;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use values::Values;
use work::Shape;

/// A program that is ready to run.
pub(crate) struct CudaPlan {
    device: Arc<Device>,
    program: Program,
    weights: Matrices,
    limits: BatchLimits,
    formats: Vec<Number>,
    values: Values,
    /// What products of one row make for themselves.
    folds: Folds,
    ropes: Ropes,
    maps: TensorMaps,
    /// The ways in which layers attend.
    ways: Vec<Shape>,
    /// All that any step may launch.
    kernels: HashMap<Need, Kernel>,
    /// The scores that tokens are drawn from.
    sampled: Option<ValueId>,
    metadata: Metadata,
    /// For a value that a product reads in its own format.
    rounded: DeviceBuffer,
    /// For the product of stacked queries, keys and values.
    stacked: DeviceBuffer,
    /// For weights that products of many rows unpack.
    unpacked: DeviceBuffer,
    /// For the rows of products by experts, and for the lists of these.
    gathered: DeviceBuffer,
    groups: DeviceBuffer,
    /// For keys in half precision of pages that a step both begins and fills.
    open_scratch: DeviceBuffer,
    /// For the partial sums of rows that are split over their keys.
    partials: DeviceBuffer,
    /// How often they got other memory.
    partials_moved: u64,
    /// For the kernels that draw.
    draw_room: DeviceBuffer,
    /// For the list of a history's counts.
    count_room: DeviceBuffer,
    flights: BTreeMap<StepId, Flight>,
    /// Steps that were waited for, and outputs that came back, whose memory the next ones use.
    spare: Vec<PendingStep<Kept>>,
    spare_outputs: Vec<StepOutput>,
    drawers: Drawers,
    /// When kernels began and ended, in turns, where somebody looks.
    watched: Option<Vec<Mark>>,
    interrupter: Interrupter,
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
        parts::check_inputs(program)?;
        experts::check(program)?;
        let ours = weights.as_any().downcast_ref::<CudaWeights>();
        let ours =
            ours.ok_or_else(|| unsupported(&program.name, "the weights were uploaded to another backend"))?;
        let (driver, properties) = (&device.driver, device.driver.properties());
        let program = unfuse(program, &|kind, body| {
            matrices::is_one((program, ours, limits), properties, (kind, body))
        });
        let weights = Matrices::new(&program, ours)?;
        let formats = formats::choose(&program, &weights);
        let folds = Folds::new(&program, (&weights, &formats), properties);
        let values = Values::new(device, &folds.placed(&program), (limits, &formats))?;
        let rounded =
            DeviceBuffer::new(driver, parts::rounded_bytes(&program, limits, (&weights, &formats)))?;
        let (open_pages, open_page_bytes) = attention::open_scratch(&program, limits);
        let stacked_bytes = limits.rows * projections::stacked_columns(&program) * size_of::<f32>();
        let parts = Parts { program: &program, weights: &weights, formats: &formats, folds: &folds, limits };
        let gathered = DeviceBuffer::new(driver, parts.gathered_bytes(properties))?;
        Ok(Self {
            device: Arc::clone(device),
            kernels: parts.load(device)?,
            maps: TensorMaps::new(
                driver,
                parts.maps(properties, &values, [rounded.address(), gathered.address()]),
            )?,
            gathered,
            ropes: Ropes::new(&program, driver)?,
            ways: attention::ways(properties, &program),
            sampled: parts::sampled(&program),
            values,
            folds,
            partials: DeviceBuffer::new(driver, 0)?,
            partials_moved: 0,
            stacked: DeviceBuffer::new(driver, stacked_bytes)?,
            unpacked: DeviceBuffer::new(driver, parts::unpacked_bytes(&program, &weights))?,
            groups: DeviceBuffer::new(driver, experts::group_bytes(&program, limits))?,
            open_scratch: DeviceBuffer::new(driver, open_pages * open_page_bytes)?,
            rounded,
            program,
            weights,
            limits: *limits,
            formats,
            metadata: Metadata::default(),
            draw_room: DeviceBuffer::new(driver, 0)?,
            count_room: DeviceBuffer::new(driver, 0)?,
            flights: BTreeMap::new(),
            spare: Vec::new(),
            spare_outputs: Vec::new(),
            drawers: Drawers::here(),
            watched: None,
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
        self.settle_for(batch)?;
        let mut pending = self.spare.pop().unwrap_or_default();
        pending.begin(batch, &state.memory().steps)?;
        let mut kept = std::mem::take(&mut pending.values);
        let fit = match watch {
            Watch::Nothing => self.fit_of(pending.batch()),
            Watch::Values(_) | Watch::Times(_) => Fit::Exact,
        };
        let uses = state.uses(pending.batch())?;
        self.prepare((pending.batch(), fit), (state, &uses), &mut kept)?;
        if self.device.poisons_scratch {
            self.poison()?;
        }
        self.mark_work()?;
        match fit {
            Fit::Exact => self.forward(pending.batch(), state, &kept, watch)?,
            Fit::Padded(padding) => self.replay(padding, state, &mut kept)?,
        }
        self.mark_work()?;
        let step = self.device.next_step();
        self.fetch_wanted(batch, &mut kept)?;
        let space = self.spare_outputs.pop().unwrap_or_default();
        pending.answer(&self.program, &kept, space)?;
        pending.values = kept;
        state.memory().steps.remember(step, batch, uses.candidates);
        let is_drawn = batch.outputs.iter().any(|output| output.want.token);
        let ended = if is_drawn { None } else { Some(self.device.driver.mark()?) };
        self.flights.insert(step, Flight { step: pending, drawn: None, ended });
        Ok(step)
    }

    /// Marks where the kernels of a step begin or end, where somebody looks.
    fn mark_work(&mut self) -> Result<(), DeviceError> {
        if let Some(marks) = &mut self.watched {
            marks.push(self.device.driver.mark()?);
        }
        Ok(())
    }

    /// Makes what steps share no number: all bits set.
    fn poison(&self) -> Result<(), DeviceError> {
        let beside =
            [&self.rounded, &self.stacked, &self.partials, &self.gathered, &self.groups, &self.open_scratch];
        for buffer in self.values.buffers.iter().chain(beside) {
            self.device.driver.fill(buffer.address(), buffer.bytes(), u8::MAX)?;
        }
        Ok(())
    }

    /// Brings to the device what the step's kernels read of the batch, and makes room for what outlives them.
    fn prepare(
        &mut self,
        (batch, fit): (&Batch, Fit),
        (state, uses): (&CudaState, &Uses),
        kept: &mut Kept,
    ) -> Result<(), DeviceError> {
        let layout = (&*self.program.state, state, uses);
        let (open_pages, _) = attention::open_scratch(&self.program, &self.limits);
        self.metadata.fill((batch, fit), (vocabulary(&self.program), open_pages), layout, &self.ways)?;
        let driver = Arc::clone(&self.device.driver);
        let partials = self.metadata.partials().saturating_mul(parts::partial_bytes(&self.program));
        if self.partials.bytes() < partials {
            // By doubling, so that graphs over it are seldom captured again.
            self.partials.grow(partials.next_power_of_two())?;
            self.partials_moved += 1;
        }
        let largest = self.largest_padding();
        let graph_rows = largest.map_or(0, |padding| padding.rows);
        let outputs = match batch.outputs.len() {
            few if few <= graph_rows => graph_rows,
            // Other memory ends the graphs over it, so it comes seldom.
            many => many.next_power_of_two().min(self.limits.outputs),
        };
        let bytes = |id: &ValueId| (*id, outputs * self.program.value(*id).width * size_of::<f32>());
        let values: Vec<(ValueId, usize)> = self.values.kept.iter().map(bytes).collect();
        let groups = (self.program.state.groups.len(), &self.ways[..]);
        let words = largest.map_or(0, |padding| Metadata::words_at_most(padding, groups));
        let list_bytes = self.metadata.bytes().max(words * size_of::<u32>());
        let partitions =
            self.sampled.map_or(0, |id| self.program.value(id).width.div_ceil(VOCABULARY_PARTITION));
        kept.prepare(&driver, (&values, [outputs, partitions]), list_bytes)?;
        for (start, bytes) in self.metadata.pieces() {
            driver.upload(kept.lists().offset(start), bytes)?;
        }
        let ids = Lists { metadata: &self.metadata, start: kept.lists() }.ids();
        self.take_tokens(ids, kept, vocabulary(&self.program))?;
        if let Some(id) = self.program.input(InputKind::Embeddings) {
            let rows = embeddings(batch, self.program.value(id).width)?;
            driver.upload(self.values.address(id, kept), &Number::F32.encode(&rows))?;
        } else if let Some(row) =
            batch.rows.iter().position(|row| matches!(row.token, TokenSource::Embedding(_)))
        {
            return Err(unknown("id of row", row as u64, "the program reads no embeddings"));
        }
        Ok(())
    }

    /// Calls `use_it` with where everything is, in a step with so many rows and outputs whose lists were filled.
    fn with_frame<T>(
        &self,
        (rows, outputs): (usize, usize),
        (state, kept): (&CudaState, &Kept),
        folds: Option<&Folds>,
        use_it: impl FnOnce(&Frame<'_>) -> T,
    ) -> T {
        use_it(&Frame {
            folds,
            program: &self.program,
            weights: &self.weights,
            formats: &self.formats,
            rows,
            outputs,
            values: &|id| self.values.address(id, kept),
            pages: &|id| state.layer(id),
            units: &|id| state.recurrent_layer(id),
            lists: Lists { metadata: &self.metadata, start: kept.lists() },
            ropes: &self.ropes,
            device: self.device.driver.properties(),
            limits: &self.limits,
            ways: &self.ways,
            maps: &self.maps,
            partials: self.partials.address(),
            rounded: self.rounded.address(),
            stacked: self.stacked.address(),
            unpacked: self.unpacked.address(),
            gathered: self.gathered.address(),
            groups: Groups::new(self.groups.address(), &self.program, &self.limits),
            open_scratch: self.open_scratch.address(),
        })
    }

    /// Launches the nodes before sampling, one by one.
    fn forward(
        &self,
        batch: &Batch,
        state: &CudaState,
        kept: &Kept,
        watch: &mut Watch<'_, '_>,
    ) -> Result<(), DeviceError> {
        let driver = &self.device.driver;
        // Whoever looks at values looks at each.
        let folds = if matches!(watch, Watch::Values(_)) { None } else { Some(&self.folds) };
        self.with_frame((batch.rows.len(), batch.outputs.len()), (state, kept), folds, |frame| {
            for (place, node) in self.program.nodes[..self.program.sampling_start()].iter().enumerate() {
                if self.interrupter.take() {
                    return Err(DeviceError::Interrupted);
                }
                if let Watch::Times(marks) = watch {
                    marks.push(driver.mark()?);
                }
                frame.calls(node)?.iter().try_for_each(|call| driver.launch(&self.launch(call)))?;
                if let Watch::Values(observe) = watch {
                    self.show(place, node, (batch, kept), observe)?;
                }
            }
            if let Watch::Times(marks) = watch {
                marks.push(driver.mark()?);
            }
            if let Some(logits) = self.sampled
                && batch.outputs.iter().any(|output| output.want.token)
            {
                let calls = frame.argmax(logits, kept.greedy());
                calls.iter().try_for_each(|call| driver.launch(&self.launch(call)))?;
            }
            Ok(())
        })
    }

    fn launch<'a>(&'a self, call: &'a Call) -> Launch<'a> {
        let kernel = self.kernels.get(&call.need).expect("the plan loaded all that a step may launch");
        let Call { grid, block, shared_bytes, .. } = *call;
        Launch { kernel, grid, block, shared_bytes, arguments: &call.arguments }
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
            let rows = match value.rows {
                Rows::Outputs => batch.outputs.len(),
                Rows::Routed(top_k) => batch.rows.len() * top_k as usize,
                Rows::Tokens | Rows::Sequences | Rows::Handed => batch.rows.len(),
            };
            let mut bytes = vec![0; rows * value.width * format.bytes()];
            if rows > 0 {
                self.device.driver.download(&mut bytes, self.values.address(*id, kept))?;
            }
            if value.element == Element::Id {
                let ids = bytes.as_chunks::<4>().0.iter().map(|id| u32::from_le_bytes(*id) as f32);
                return Ok(ids.collect());
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
        let size = ((0..batch.outputs.len()).collect(), self.program.value(id).width);
        Ok(kept.fetch(&self.device.driver, id, size)?)
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

    fn watch(&mut self, is_on: bool) -> Result<Option<DeviceUse>, DeviceError> {
        let marks = std::mem::replace(&mut self.watched, is_on.then(Vec::new)).unwrap_or_default();
        let moments = self.device.driver.times(marks)?;
        let Some(whole) = moments.last().copied() else { return Ok(None) };
        let working = moments.as_chunks::<2>().0.iter().map(|[begun, ended]| *ended - *begun).sum();
        Ok(Some(DeviceUse { whole, working }))
    }

    fn sample(&mut self, step: StepId, rows: &SampleRows, state: &mut dyn State) -> Result<(), DeviceError> {
        if self.interrupter.take() {
            return Err(DeviceError::Interrupted);
        }
        let state = CudaState::ours(state, &self.program)?;
        // Apart from the others, which may have to be looked at first.
        let mut flight = self.flights.remove(&step).ok_or_else(|| not_pending(step))?;
        let drawn = self.draw(step, &mut flight, rows, state);
        self.flights.insert(step, flight);
        drawn
    }

    fn wait(&mut self, step: StepId) -> Result<StepOutput, DeviceError> {
        self.settle(step)?;
        let flight = self.flights.get_mut(&step).ok_or_else(|| not_pending(step))?;
        flight.step.check_finished(step)?;
        flight.ended.take().map_or(Ok(()), |mark| self.device.driver.await_mark(mark))?;
        let mut finished = self.flights.remove(&step).expect("it was found above").step;
        let output = finished.take_output();
        self.spare.push(finished);
        Ok(output)
    }

    fn make_ready(&mut self, state: &mut dyn State) -> Result<Readiness, DeviceError> {
        self.capture_next(state)
    }

    fn reuse(&mut self, output: StepOutput) {
        self.spare_outputs.push(output);
    }

    fn interrupter(&self) -> Interrupter {
        self.interrupter.clone()
    }

    fn bytes(&self) -> PlanBytes {
        let own = [
            &self.rounded,
            &self.stacked,
            &self.unpacked,
            &self.gathered,
            &self.groups,
            &self.open_scratch,
            &self.partials,
            &self.draw_room,
            &self.count_room,
        ];
        let own = self.values.buffers.iter().chain(own).map(DeviceBuffer::bytes).sum::<usize>();
        let steps = self
            .flights
            .values()
            .map(|flight| &flight.step)
            .chain(&self.spare)
            .map(|step| step.values.bytes())
            .sum::<usize>();
        // What the driver keeps of a graph, it doesn't tell.
        PlanBytes { scratch: (own + steps) as u64, graphs: 0 }
    }
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
