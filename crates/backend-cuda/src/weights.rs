//! Weights in the device's memory: vectors as float32, matrices in the order in which the kernels read them.
//!
//! A tensor goes through pinned memory to the device as the checkpoint has it. A plan then says which matrices its kernels
//! read as one, and each is put into that order by a kernel, once: the next plan finds it so, and what the
//! checkpoint had is given back.

use crate::backend::{Device, Need};
use crate::driver::{Argument, DeviceBuffer, Driver, Launch};
use crate::error::unsupported;
use crate::jit::linear;
use crate::number::Number;
use gannet_ops::{DeviceError, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse, Weights};
use gannet_tensor::TensorView;
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Rows and columns of a matrix in tile order are padded to multiples of this.
pub(crate) const PADDING: usize = 64;
/// Rows of a tile that belong to one of two matrices of which one gates the other.
pub(crate) const GATED_ROWS: usize = 8;
/// Elements that a thread of `repack` writes, and threads of its blocks.
const REPACKED_BY_THREAD: usize = 8;
const REPACK_THREADS: usize = 256;

/// A weight in the device's memory.
pub(crate) struct Weight {
    pub(crate) format: Number,
    pub(crate) shape: Vec<usize>,
    pub(crate) buffer: DeviceBuffer,
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
    vectors: HashMap<String, Arc<Weight>>,
    matrices: Mutex<Matrices>,
}

#[derive(Default)]
struct Matrices {
    /// As the checkpoint has them, row-major, by canonical name; those that no plan has asked for.
    raw: HashMap<String, Weight>,
    arranged: HashMap<Arrangement, Arc<Weight>>,
}

impl CudaWeights {
    pub(crate) fn upload(
        device: &Arc<Device>,
        source: &dyn WeightSource,
        uses: &[WeightUse],
    ) -> Result<Self, DeviceError> {
        // What has no place is said before anything is read.
        uses.iter().try_for_each(check_role)?;
        let mut weights = Self {
            device: Arc::clone(device),
            uses: HashMap::new(),
            vectors: HashMap::new(),
            matrices: Mutex::default(),
        };
        for used in uses {
            if !weights.uses.contains_key(&used.name) {
                let weight = weights.bring(used, &source.weight(&used.name)?)?;
                if used.role == WeightRole::Vector {
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
        if (used.role == WeightRole::Vector) != (wanted.role == WeightRole::Vector) {
            return Err(unsupported("compile", format!("weight `{name}` was uploaded for another role")));
        }
        Ok(())
    }

    /// The format of a matrix that is there.
    pub(crate) fn format(&self, name: &str) -> Option<Number> {
        let matrices = self.matrices();
        let arranged = || {
            let found = matrices.arranged.iter().find(|(arrangement, _)| arrangement.names().contains(&name));
            found.map(|(_, weight)| weight.format)
        };
        matrices.raw.get(name).map(|weight| weight.format).or_else(arranged)
    }

    /// A vector.
    pub(crate) fn vector(&self, name: &str) -> Option<Arc<Weight>> {
        self.vectors.get(name).map(Arc::clone)
    }

    /// Matrices in the order in which kernels read them as one: as a plan before found them, or put into it now.
    pub(crate) fn arranged(&self, arrangement: &Arrangement) -> Result<Arc<Weight>, DeviceError> {
        let mut matrices = self.matrices();
        if let Some(weight) = matrices.arranged.get(arrangement) {
            return Ok(Arc::clone(weight));
        }
        let names = arrangement.names();
        if let Some(name) = names.iter().find(|name| !matrices.raw.contains_key(**name)) {
            let reason = format!("weight `{name}` was put into another order for another program");
            return Err(unsupported("compile", reason));
        }
        let mut parts: Vec<Weight> =
            names.iter().map(|name| matrices.raw.remove(*name).expect("it was looked for")).collect();
        let is_as_read = parts.len() == 1 && parts[0].format == Number::F32;
        let weight = if is_as_read { parts.remove(0) } else { self.packed(arrangement, &parts)? };
        let weight = Arc::new(weight);
        matrices.arranged.insert(arrangement.clone(), Arc::clone(&weight));
        Ok(weight)
    }

    fn packed(&self, arrangement: &Arrangement, parts: &[Weight]) -> Result<Weight, DeviceError> {
        let (format, columns) = (parts[0].format, parts[0].shape[1]);
        let rows: usize = parts.iter().map(|part| part.shape[0]).sum();
        let driver = &self.device.driver;
        let (padded_rows, padded_columns) = match format {
            Number::F32 => (rows, columns),
            Number::F16 | Number::Bf16 => (rows.next_multiple_of(PADDING), columns.next_multiple_of(PADDING)),
        };
        let buffer = DeviceBuffer::new(driver, padded_rows * padded_columns * format.bytes())?;
        if padded_rows > rows {
            driver.clear(buffer.address(), buffer.bytes())?;
        }
        let mut first = 0;
        for (number, part) in parts.iter().enumerate() {
            match (format, arrangement) {
                (Number::F32, _) => {
                    let bytes = part.shape[0] * columns * format.bytes();
                    let place = buffer.address().offset(first * columns * format.bytes());
                    driver.copy(place, part.buffer.address(), bytes)?;
                }
                (_, Arrangement::Stacked(_)) => self.repack(part, &buffer, [first, 0])?,
                (_, Arrangement::Gated(_)) => self.repack(part, &buffer, [number * GATED_ROWS, 1])?,
            }
            first += part.shape[0];
        }
        Ok(Weight { format, shape: vec![rows, columns], buffer })
    }

    /// Puts a row-major matrix into its place of one in tile order.
    fn repack(
        &self,
        part: &Weight,
        into: &DeviceBuffer,
        [first, gated]: [usize; 2],
    ) -> Result<(), DeviceError> {
        let need: Need = (linear(part.format), "repack");
        let kernel = self.device.kernels(&[need])?.remove(0);
        let (n, k) = (part.shape[0], part.shape[1]);
        let elements = n * k.next_multiple_of(PADDING);
        let numbers = [n, k, first, gated].map(|number| Argument::U32(number as u32));
        let addresses = [into.address().into(), part.buffer.address().into()];
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
        if used.role == WeightRole::Vector || self.device.single_precision {
            return self.single(used, &view);
        }
        let format = Number::of_tensor(tensor.format).ok_or_else(|| {
            let reason = format!("weight `{name}` is in {}; bf16, f16 and f32 have kernels, and `--activations f32` makes any format f32", tensor.format);
            unsupported("linear", reason)
        })?;
        self.to_device(used, format, &tensor.bytes)
    }

    /// A weight as float32.
    fn single(&self, used: &WeightUse, view: &TensorView<'_>) -> Result<Weight, DeviceError> {
        let mut numbers = vec![0.0; view.rows() * view.columns()];
        for (row, out) in numbers.chunks_mut(view.columns().max(1)).enumerate() {
            view.decode_row(row, out);
        }
        self.to_device(used, Number::F32, &Number::F32.encode(&numbers))
    }

    fn to_device(&self, used: &WeightUse, format: Number, bytes: &[u8]) -> Result<Weight, DeviceError> {
        let buffer = DeviceBuffer::new(&self.device.driver, bytes.len())?;
        self.device.driver.upload(buffer.address(), bytes)?;
        Ok(Weight { format, shape: used.shape.clone(), buffer })
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

fn check_role(used: &WeightUse) -> Result<(), DeviceError> {
    let op = match used.role {
        WeightRole::Vector | WeightRole::Matrix | WeightRole::Embedding | WeightRole::TiedEmbedding => {
            return Ok(());
        }
        WeightRole::Experts => "expert_linear",
        WeightRole::Convolution => "causal_conv",
    };
    Err(unsupported(op, format!("it has no kernel yet, and weight `{}` is read by it", used.name)))
}

impl Weights for CudaWeights {
    fn bytes(&self) -> u64 {
        let matrices = self.matrices();
        let arranged = matrices.arranged.values().map(|weight| weight.buffer.bytes());
        let raw = matrices.raw.values().map(|weight| weight.buffer.bytes());
        let vectors = self.vectors.values().map(|weight| weight.buffer.bytes());
        arranged.chain(raw).chain(vectors).sum::<usize>() as u64
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
