//! Weights in the device's memory: matrices in the order in which the kernels read them, vectors as float32.
//!
//! A tensor goes through pinned memory to the device as the checkpoint has it; matrices of half precision are then put
//! into core order there, by a kernel, from a buffer that the next one reuses.

use crate::backend::{Device, Need};
use crate::driver::{Argument, DeviceBuffer, Kernel, Launch};
use crate::error::unsupported;
use crate::jit::linear;
use crate::number::Number;
use gannet_ops::{DeviceError, WeightError, WeightRole, WeightSource, WeightTensor, WeightUse, Weights};
use gannet_tensor::TensorView;
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

/// Rows and columns of a matrix in core order are padded to multiples of this.
const PADDING: usize = 64;
/// Elements that a thread of `repack` writes, and threads of its blocks.
const REPACKED_BY_THREAD: usize = 8;
const REPACK_THREADS: usize = 256;

/// A weight in the device's memory.
pub(crate) struct Weight {
    pub(crate) format: Number,
    pub(crate) shape: Vec<usize>,
    pub(crate) is_vector: bool,
    pub(crate) buffer: DeviceBuffer,
}

/// All weights of a model, by canonical name.
pub(crate) struct CudaWeights {
    by_name: HashMap<String, Arc<Weight>>,
}

impl CudaWeights {
    pub(crate) fn upload(
        device: &Arc<Device>,
        source: &dyn WeightSource,
        uses: &[WeightUse],
    ) -> Result<Self, DeviceError> {
        // What has no place is said before anything is read.
        uses.iter().try_for_each(check_role)?;
        let mut way = Way { device, staging: DeviceBuffer::new(&device.driver, 0)? };
        let mut by_name = HashMap::new();
        for used in uses {
            if !by_name.contains_key(&used.name) {
                let weight = way.bring(used, &source.weight(&used.name)?)?;
                by_name.insert(used.name.clone(), Arc::new(weight));
            }
        }
        device.driver.synchronize()?;
        Ok(Self { by_name })
    }

    /// The weight that a program asks for.
    pub(crate) fn get(&self, used: &WeightUse) -> Result<Arc<Weight>, DeviceError> {
        let (name, file) = (used.name.clone(), "the uploaded weights".to_owned());
        let Some(weight) = self.by_name.get(&used.name) else {
            return Err(WeightError::Missing { name, file }.into());
        };
        if weight.shape != used.shape {
            let (expected, found) = (used.shape.clone(), weight.shape.clone());
            return Err(WeightError::WrongShape { name, file, expected, found }.into());
        }
        if weight.is_vector != (used.role == WeightRole::Vector) {
            return Err(unsupported("compile", format!("weight `{name}` was uploaded for another role")));
        }
        Ok(Arc::clone(weight))
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

/// How tensors get to the device.
struct Way<'a> {
    device: &'a Arc<Device>,
    /// A matrix on its way into core order.
    staging: DeviceBuffer,
}

impl Way<'_> {
    fn bring(&mut self, used: &WeightUse, tensor: &WeightTensor<'_>) -> Result<Weight, DeviceError> {
        let (name, file) = (used.name.clone(), "the checkpoint".to_owned());
        if tensor.shape != used.shape {
            let (expected, found) = (used.shape.clone(), tensor.shape.clone());
            return Err(WeightError::WrongShape { name, file, expected, found }.into());
        }
        let view = TensorView::new(tensor.format, &tensor.shape, &tensor.bytes).map_err(|error| {
            WeightError::Unreadable { name: name.clone(), file, reason: error.to_string() }
        })?;
        let is_vector = used.role == WeightRole::Vector;
        if is_vector || self.device.single_precision {
            return self.single(used, &view, is_vector);
        }
        let format = Number::of_tensor(tensor.format).ok_or_else(|| {
            let reason = format!("weight `{name}` is in {}; bf16, f16 and f32 have kernels, and `--activations f32` makes any format f32", tensor.format);
            unsupported("linear", reason)
        })?;
        self.matrix(used, format, &tensor.bytes)
    }

    /// A weight as float32.
    fn single(
        &self,
        used: &WeightUse,
        view: &TensorView<'_>,
        is_vector: bool,
    ) -> Result<Weight, DeviceError> {
        let mut numbers = vec![0.0; view.rows() * view.columns()];
        for (row, out) in numbers.chunks_mut(view.columns().max(1)).enumerate() {
            view.decode_row(row, out);
        }
        let buffer = self.to_device(&Number::F32.encode(&numbers))?;
        Ok(Weight { format: Number::F32, shape: used.shape.clone(), is_vector, buffer })
    }

    fn matrix(&mut self, used: &WeightUse, format: Number, bytes: &[u8]) -> Result<Weight, DeviceError> {
        let buffer = match format {
            Number::F32 => self.to_device(bytes)?,
            Number::F16 | Number::Bf16 => self.repacked((used.shape[0], used.shape[1]), format, bytes)?,
        };
        Ok(Weight { format, shape: used.shape.clone(), is_vector: false, buffer })
    }

    fn to_device(&self, bytes: &[u8]) -> Result<DeviceBuffer, DeviceError> {
        let buffer = DeviceBuffer::new(&self.device.driver, bytes.len())?;
        self.device.driver.upload(buffer.address(), bytes)?;
        Ok(buffer)
    }

    fn repacked(
        &mut self,
        (n, k): (usize, usize),
        format: Number,
        bytes: &[u8],
    ) -> Result<DeviceBuffer, DeviceError> {
        let need: Need = (linear(format), "repack");
        let kernel: Kernel = self.device.kernels(&[need])?.remove(0);
        let elements = n.next_multiple_of(PADDING) * k.next_multiple_of(PADDING);
        let driver = &self.device.driver;
        self.staging.grow(bytes.len())?;
        driver.upload(self.staging.address(), bytes)?;
        let buffer = DeviceBuffer::new(driver, elements * format.bytes())?;
        driver.launch(&Launch {
            kernel: &kernel,
            grid: [elements.div_ceil(REPACKED_BY_THREAD * REPACK_THREADS) as u32, 1, 1],
            block: REPACK_THREADS as u32,
            shared_bytes: 0,
            arguments: &[
                buffer.address().into(),
                self.staging.address().into(),
                Argument::U32(n as u32),
                Argument::U32(k as u32),
            ],
        })?;
        Ok(buffer)
    }
}

impl Weights for CudaWeights {
    fn bytes(&self) -> u64 {
        self.by_name.values().map(|weight| weight.buffer.bytes() as u64).sum()
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
