//! Weights in the device's memory: vectors as float32, matrices in the order in which the kernels read them.
//!
//! A tensor goes through pinned memory to the device as the checkpoint has it. A plan then says which matrices its kernels
//! read as one, and each is put into that order by a kernel, once: the next plan finds it so, and what the
//! checkpoint had is given back. Matrices of codes are put into units by the host (`codes`), which kernels then bring together.

use crate::backend::{Device, Need};
use crate::codes::{UNIT_OUTPUTS, Units};
use crate::driver::{Address, Argument, DeviceBuffer, Driver, Launch};
use crate::error::unsupported;
use crate::jit::{linear, place_units};
use crate::number::Number;
use gannet_ops::{DeviceError, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse, Weights};
use gannet_tensor::{Format, TensorView};
use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows and columns of a matrix in tile order are padded to multiples of this.
pub(crate) const PADDING: usize = 64;
/// Rows of an expert's matrix are padded to multiples of this.
pub(crate) const EXPERT_PADDING: usize = 16;
/// Rows of a tile that belong to one of two matrices of which one gates the other.
pub(crate) const GATED_ROWS: usize = 8;
/// Elements that a thread of `repack` writes, and threads of its blocks.
const REPACKED_BY_THREAD: usize = 8;
const REPACK_THREADS: usize = 256;
/// What a thread of `place_units` copies.
const PIECE_BYTES: usize = 16;

/// A weight in the device's memory.
pub(crate) struct Weight {
    pub(crate) stored: Stored,
    pub(crate) shape: Vec<usize>,
    pub(crate) buffer: DeviceBuffer,
}

/// How a weight lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stored {
    /// As plain numbers.
    Plain(Number),
    /// As codes, which kernels make bf16.
    Codes(Units),
}

impl Stored {
    /// The format of what is multiplied with it.
    pub(crate) fn reads(self) -> Number {
        match self {
            Stored::Plain(number) => number,
            Stored::Codes(_) => Number::Bf16,
        }
    }
}

/// Matrices that kernels read as one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Arrangement {
    /// Rows of one after those of the other.
    Stacked(Vec<String>),
    /// Eight rows of the gate, eight of what it gates, and so on.
    Gated([String; 2]),
}

/// All weights of a model.
pub(crate) struct CudaWeights {
    device: Arc<Device>,
    uses: HashMap<String, WeightUse>,
    stored: HashMap<String, Stored>,
    vectors: HashMap<String, Arc<Weight>>,
    /// Matrices in formats without kernels, which were made bf16, by format.
    decoded: BTreeMap<Format, usize>,
    matrices: Mutex<Matrices>,
}

#[derive(Default)]
struct Matrices {
    /// As the checkpoint has them, row-major, by canonical name; those that no plan has asked for.
    raw: HashMap<String, Weight>,
    /// One matrix each, or several where parts lie in different formats.
    arranged: HashMap<Arrangement, Vec<Arc<Weight>>>,
}

impl CudaWeights {
    pub(crate) fn upload(
        device: &Arc<Device>,
        source: &dyn WeightSource,
        uses: &[WeightUse],
    ) -> Result<Self, DeviceError> {
        let mut weights = Self {
            device: Arc::clone(device),
            uses: HashMap::new(),
            stored: HashMap::new(),
            vectors: HashMap::new(),
            decoded: BTreeMap::new(),
            matrices: Mutex::default(),
        };
        for used in uses {
            if !weights.uses.contains_key(&used.name) {
                let tensor = source.weight(&used.name)?;
                let weight = weights.bring(used, &tensor)?;
                if weight.stored == Stored::Plain(Number::Bf16) && tensor.format != Format::Bf16 {
                    *weights.decoded.entry(tensor.format).or_default() += 1;
                }
                weights.stored.insert(used.name.clone(), weight.stored);
                if is_numbers(used.role) {
                    weights.vectors.insert(used.name.clone(), Arc::new(weight));
                } else {
                    weights.matrices().raw.insert(used.name.clone(), weight);
                }
                weights.uses.insert(used.name.clone(), used.clone());
            }
        }
        device.driver.synchronize()?;
        Ok(weights)
    }

    pub(crate) fn driver(&self) -> &Arc<dyn Driver> {
        &self.device.driver
    }

    fn matrices(&self) -> MutexGuard<'_, Matrices> {
        self.matrices.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that a weight is there as a program wants it.
    pub(crate) fn check(&self, wanted: &WeightUse) -> Result<(), DeviceError> {
        let (name, file) = (wanted.name.clone(), "the uploaded weights".to_owned());
        let Some(used) = self.uses.get(&wanted.name) else {
            return Err(WeightError::Missing { name, file }.into());
        };
        if used.shape != wanted.shape {
            let (expected, found) = (wanted.shape.clone(), used.shape.clone());
            return Err(WeightError::WrongShape { name, file, expected, found }.into());
        }
        if is_numbers(used.role) != is_numbers(wanted.role) {
            return Err(unsupported("compile", format!("weight `{name}` was uploaded for another role")));
        }
        Ok(())
    }

    /// How a weight that is there lies.
    pub(crate) fn stored(&self, name: &str) -> Option<Stored> {
        self.stored.get(name).copied()
    }

    /// A vector.
    pub(crate) fn vector(&self, name: &str) -> Option<Arc<Weight>> {
        self.vectors.get(name).map(Arc::clone)
    }

    /// Matrices in the order in which kernels read them as one: as a plan before found them, or put into it now. Neighbours that
    /// lie alike are one, the others stay apart, in order.
    pub(crate) fn arranged(&self, arrangement: &Arrangement) -> Result<Vec<Arc<Weight>>, DeviceError> {
        let mut matrices = self.matrices();
        if let Some(weights) = matrices.arranged.get(arrangement) {
            return Ok(weights.clone());
        }
        let names = arrangement.names();
        if let Some(name) = names.iter().find(|name| !matrices.raw.contains_key(**name)) {
            let reason = format!("weight `{name}` was put into another order for another program");
            return Err(unsupported("compile", reason));
        }
        let parts = names.iter().map(|name| matrices.raw.remove(*name).expect("it was looked for"));
        let mut alike: Vec<Vec<Weight>> = Vec::new();
        for part in parts {
            match alike.last_mut() {
                Some(others) if can_follow(&others[others.len() - 1], &part) => others.push(part),
                Some(_) | None => alike.push(vec![part]),
            }
        }
        let brought = alike.into_iter().map(|parts| Ok(Arc::new(self.packed(arrangement, parts)?)));
        let weights = brought.collect::<Result<Vec<_>, DeviceError>>()?;
        matrices.arranged.insert(arrangement.clone(), weights.clone());
        Ok(weights)
    }

    fn packed(&self, arrangement: &Arrangement, mut parts: Vec<Weight>) -> Result<Weight, DeviceError> {
        let (stored, columns) = (parts[0].stored, parts[0].columns());
        let is_as_read =
            parts.len() == 1 && stored != Stored::Plain(Number::F16) && stored != Stored::Plain(Number::Bf16);
        if is_as_read {
            return Ok(parts.remove(0));
        }
        if let [experts, ..] = parts[0].shape[..]
            && parts[0].has_experts()
        {
            return self.packed_experts(arrangement, &parts, experts);
        }
        let rows: usize = parts.iter().map(Weight::rows).sum();
        let driver = &self.device.driver;
        let bytes = match stored {
            Stored::Plain(Number::F32) => rows * columns * Number::F32.bytes(),
            Stored::Plain(Number::F16 | Number::Bf16) => {
                rows.next_multiple_of(PADDING) * columns.next_multiple_of(PADDING) * Number::Bf16.bytes()
            }
            Stored::Codes(units) => units.matrix_bytes([rows, columns]),
        };
        let buffer = DeviceBuffer::new(driver, bytes)?;
        if stored != Stored::Plain(Number::F32) {
            // What pads the rows is no part's.
            driver.clear(buffer.address(), buffer.bytes())?;
        }
        let mut first = 0;
        for (number, part) in parts.iter().enumerate() {
            let [row, is_gated] = match arrangement {
                Arrangement::Stacked(_) => [first, 0],
                Arrangement::Gated(_) => [number * GATED_ROWS, 1],
            };
            match stored {
                Stored::Plain(Number::F32) => {
                    let place = buffer.address().offset(first * columns * Number::F32.bytes());
                    driver.copy(place, part.buffer.address(), part.buffer.bytes())?;
                }
                Stored::Plain(format) => self.repack((part.matrix(0), format), &buffer, [row, is_gated])?,
                Stored::Codes(units) => {
                    self.place_units((part.matrix(0), units), &buffer, [row, is_gated])?
                }
            }
            first += part.rows();
        }
        Ok(Weight { stored, shape: vec![rows, columns], buffer })
    }

    /// Matrices of experts one after the other, each of all parts and padded to [`EXPERT_PADDING`] rows.
    fn packed_experts(
        &self,
        arrangement: &Arrangement,
        parts: &[Weight],
        experts: usize,
    ) -> Result<Weight, DeviceError> {
        let (stored, columns) = (parts[0].stored, parts[0].columns());
        let rows: usize = parts.iter().map(Weight::rows).sum();
        let padded = rows.next_multiple_of(EXPERT_PADDING);
        let driver = &self.device.driver;
        let bytes = match stored {
            Stored::Plain(number) => {
                // Products of many rows read up to a multiple of this from the last expert's rows on.
                let all = experts * padded + PADDING - EXPERT_PADDING;
                all * columns.next_multiple_of(PADDING) * number.bytes()
            }
            Stored::Codes(units) => experts * units.matrix_bytes([rows, columns]),
        };
        let buffer = DeviceBuffer::new(driver, bytes)?;
        driver.clear(buffer.address(), buffer.bytes())?;
        let is_gated = usize::from(matches!(arrangement, Arrangement::Gated(_)));
        for expert in 0..experts {
            for (number, part) in parts.iter().enumerate() {
                let place = [expert * padded + number * GATED_ROWS, is_gated];
                let matrix = part.matrix(expert);
                match stored {
                    Stored::Plain(format) => self.repack((matrix, format), &buffer, place)?,
                    Stored::Codes(units) => self.place_units((matrix, units), &buffer, place)?,
                }
            }
        }
        Ok(Weight { stored, shape: vec![experts, rows, columns], buffer })
    }

    /// Puts a matrix in units into its place of one with more parts.
    fn place_units(
        &self,
        ((from, [n, k]), units): ((Address, [usize; 2]), Units),
        into: &DeviceBuffer,
        [first, gated]: [usize; 2],
    ) -> Result<(), DeviceError> {
        let need: Need = (place_units(units.name()), "place_units");
        let kernel = self.device.kernels(&[need])?.remove(0);
        let (eights, runs) = (n.div_ceil(UNIT_OUTPUTS), units.runs(k));
        let pieces = eights * runs * units.bytes() / PIECE_BYTES;
        let numbers =
            [eights, runs, first / UNIT_OUTPUTS, gated + 1].map(|number| Argument::U32(number as u32));
        let addresses = [into.address().into(), from.into()];
        self.device.driver.launch(&Launch {
            kernel: &kernel,
            grid: [pieces.div_ceil(REPACK_THREADS) as u32, 1, 1],
            block: REPACK_THREADS as u32,
            shared_bytes: 0,
            arguments: &[&addresses[..], &numbers].concat(),
        })?;
        Ok(())
    }

    /// Puts a row-major matrix into its place of one in tile order.
    fn repack(
        &self,
        ((from, [n, k]), format): ((Address, [usize; 2]), Number),
        into: &DeviceBuffer,
        [first, gated]: [usize; 2],
    ) -> Result<(), DeviceError> {
        let need: Need = (linear(format), "repack");
        let kernel = self.device.kernels(&[need])?.remove(0);
        let elements = n * k.next_multiple_of(PADDING);
        let numbers = [n, k, first, gated].map(|number| Argument::U32(number as u32));
        let addresses = [into.address().into(), from.into()];
        self.device.driver.launch(&Launch {
            kernel: &kernel,
            grid: [elements.div_ceil(REPACKED_BY_THREAD * REPACK_THREADS) as u32, 1, 1],
            block: REPACK_THREADS as u32,
            shared_bytes: 0,
            arguments: &[&addresses[..], &numbers].concat(),
        })?;
        Ok(())
    }

    fn bring(&self, used: &WeightUse, tensor: &WeightTensor<'_>) -> Result<Weight, DeviceError> {
        let (name, file) = (used.name.clone(), "the checkpoint".to_owned());
        if tensor.shape != used.shape {
            let (expected, found) = (used.shape.clone(), tensor.shape.clone());
            return Err(WeightError::WrongShape { name, file, expected, found }.into());
        }
        let view = TensorView::new(tensor.format, &tensor.shape, &tensor.bytes).map_err(|error| {
            WeightError::Unreadable { name: name.clone(), file, reason: error.to_string() }
        })?;
        if is_numbers(used.role) || self.device.single_precision {
            return self.decoded(used, &view, Number::F32);
        }
        if let Some(format) = Number::of_tensor(tensor.format) {
            return self.to_device(used, Stored::Plain(format), &tensor.bytes);
        }
        let codes = Units::of(tensor.format).filter(|_| used.shape.len() > 1);
        let packed = codes.and_then(|units| Some((units, units.pack_all(&tensor.bytes, &used.shape)?)));
        if let Some((units, packed)) = packed {
            return self.to_device(used, Stored::Codes(units), &packed);
        }
        // Formats without kernels: what they hold, rounded here, in the bytes of bf16.
        self.decoded(used, &view, Number::Bf16)
    }

    /// A weight as plain numbers, in bf16 rounded as codes are.
    fn decoded(
        &self,
        used: &WeightUse,
        view: &TensorView<'_>,
        number: Number,
    ) -> Result<Weight, DeviceError> {
        let mut numbers = vec![0.0; view.rows() * view.columns()];
        for (row, out) in numbers.chunks_mut(view.columns().max(1)).enumerate() {
            match number {
                Number::F32 | Number::F16 => view.decode_row(row, out),
                Number::Bf16 => view.format().decode_as_bf16(view.row(row), out),
            }
        }
        self.to_device(used, Stored::Plain(number), &number.encode(&numbers))
    }

    fn to_device(&self, used: &WeightUse, stored: Stored, bytes: &[u8]) -> Result<Weight, DeviceError> {
        let buffer = DeviceBuffer::new(&self.device.driver, bytes.len())?;
        self.device.driver.upload(buffer.address(), bytes)?;
        Ok(Weight { stored, shape: used.shape.clone(), buffer })
    }
}

impl Weight {
    /// Whether it has a matrix an expert.
    pub(crate) fn has_experts(&self) -> bool {
        self.shape.len() == 3
    }

    /// Rows of a matrix.
    pub(crate) fn rows(&self) -> usize {
        self.shape[self.shape.len().saturating_sub(2)]
    }

    /// Columns of a matrix.
    pub(crate) fn columns(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Where the matrix of an expert lies before it is arranged, and its size.
    fn matrix(&self, expert: usize) -> (Address, [usize; 2]) {
        let size = [self.rows(), self.columns()];
        let bytes = match self.stored {
            Stored::Plain(number) => size[0] * size[1] * number.bytes(),
            Stored::Codes(units) => units.matrix_bytes(size),
        };
        (self.buffer.address().offset(expert * bytes), size)
    }
}

impl Arrangement {
    /// One matrix alone.
    pub(crate) fn alone(name: &str) -> Self {
        Self::Stacked(vec![name.to_owned()])
    }

    fn names(&self) -> Vec<&str> {
        match self {
            Arrangement::Stacked(names) => names.iter().map(String::as_str).collect(),
            Arrangement::Gated(names) => names.iter().map(String::as_str).collect(),
        }
    }
}

/// Whether the rows of a matrix can follow those of another in the same memory.
fn can_follow(last: &Weight, next: &Weight) -> bool {
    let is_whole = match last.stored {
        Stored::Plain(_) => true,
        Stored::Codes(_) => last.rows().is_multiple_of(UNIT_OUTPUTS),
    };
    is_whole && last.stored == next.stored && last.has_experts() == next.has_experts()
}

/// Whether a weight is kept as float32 in its own order.
pub(crate) fn is_numbers(role: WeightRole) -> bool {
    matches!(role, WeightRole::Vector | WeightRole::Convolution)
}

impl Weights for CudaWeights {
    fn bytes(&self) -> u64 {
        let matrices = self.matrices();
        let arranged = matrices.arranged.values().flatten().map(|weight| weight.buffer.bytes());
        let raw = matrices.raw.values().map(|weight| weight.buffer.bytes());
        let vectors = self.vectors.values().map(|weight| weight.buffer.bytes());
        arranged.chain(raw).chain(vectors).sum::<usize>() as u64
    }

    fn remarks(&self) -> Vec<String> {
        let remark = |(format, count): (&Format, &usize)| {
            format!(
                "{count} weights in `{format}` have no kernels of their own: they take the room and the time of bf16"
            )
        };
        self.decoded.iter().map(remark).collect()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
