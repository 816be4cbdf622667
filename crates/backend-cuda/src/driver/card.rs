//! A card through NVIDIA's driver: the primary context, one stream, memory and kernels.

use super::api::{self, Cuda, Handle, LaunchAttribute, LaunchConfig};
use super::staging::{self, Staging};
use super::{
    Address, Architecture, Argument, Driver, GraphHandle, Kernel, Launch, Mark, Pinned, Properties,
    TENSOR_MAP_BYTES, TensorMap,
};
use crate::error::CudaError;
use crate::jit::Variant;
use crate::libraries::Places;
use crate::options::CudaOptions;
use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Dynamic shared memory that a kernel may have without being asked: of 48 KiB, what leaves room for all that kernels declare themselves.
const SHARED_BYTES_UNASKED: u32 = 24 << 10;
/// Bytes of a device's name.
const NAME_BYTES: usize = 256;
/// A stream that waits for no other, as flags.
const NON_BLOCKING: u32 = 1;

/// Columns of a box of a tensor map.
const BOX_COLUMNS: u32 = 64;

/// A tensor map as the driver writes it.
#[repr(C, align(64))]
struct EncodedMap([u8; TENSOR_MAP_BYTES]);

/// A card.
pub(crate) struct Card {
    cuda: Arc<Cuda>,
    device: c_int,
    context: Handle,
    stream: Handle,
    /// On which graphs are captured, by one thread at a time; nothing runs on it.
    capture_stream: Mutex<Handle>,
    properties: Properties,
    serial_launches: bool,
    staging: Mutex<Staging>,
    modules: Mutex<Vec<Handle>>,
}

impl Card {
    /// Opens the driver and a card.
    ///
    /// # Errors
    /// No driver, an old one, no card of this number, or one that is too old.
    pub(crate) fn open(options: &CudaOptions, places: &Places) -> Result<Self, CudaError> {
        let cuda = Arc::new(Cuda::open(places)?);
        // SAFETY: the first call of the driver, with the flags that it defines.
        cuda.check("cuInit", unsafe { (cuda.init)(0) })
            .map_err(|error| CudaError::NoDevice(format!(" ({}: {error})", cuda.path)))?;
        let device = device(&cuda, options.device)?;
        let properties = properties(&cuda, device)?;
        let (mut context, mut stream, mut capture_stream) = (0, 0, 0);
        // SAFETY: the device exists; the driver sets the handles that it makes.
        unsafe {
            cuda.check("cuDevicePrimaryCtxRetain", (cuda.retain_context)(&mut context, device))?;
            cuda.check("cuCtxSetCurrent", (cuda.set_context)(context))?;
            cuda.check("cuStreamCreate", (cuda.create_stream)(&mut stream, NON_BLOCKING))?;
            cuda.check("cuStreamCreate", (cuda.create_stream)(&mut capture_stream, NON_BLOCKING))?;
        }
        let capture_stream = Mutex::new(capture_stream);
        let staging = Mutex::new(Staging::new(&cuda)?);
        let (serial_launches, modules) = (options.serial_launches, Mutex::default());
        Ok(Self {
            cuda,
            device,
            context,
            stream,
            capture_stream,
            properties,
            serial_launches,
            staging,
            modules,
        })
    }

    /// Makes the context that of the calling thread.
    fn enter(&self) -> Result<&Cuda, CudaError> {
        // SAFETY: the context lives as long as `self`.
        self.cuda.check("cuCtxSetCurrent", unsafe { (self.cuda.set_context)(self.context) })?;
        Ok(&self.cuda)
    }

    fn launch_on(&self, stream: Handle, launch: &Launch<'_>) -> Result<(), CudaError> {
        let cuda = self.enter()?;
        let function = launch.kernel.handle;
        if launch.shared_bytes > SHARED_BYTES_UNASKED {
            let bytes = launch.shared_bytes as c_int;
            // SAFETY: the function lives as long as `self`.
            let result = unsafe { (cuda.set_function_attribute)(function, api::DYNAMIC_SHARED_BYTES, bytes) };
            cuda.check("cuFuncSetAttribute", result)?;
        }
        let pointers: Vec<*const c_void> = launch.arguments.iter().map(pointer_to).collect();
        let mut value = [0; 16];
        value[0] = u32::from(!self.serial_launches);
        let attribute = LaunchAttribute { id: api::PROGRAMMATIC_SERIALIZATION, padding: 0, value };
        let config = LaunchConfig {
            grid: launch.grid,
            block: [launch.block, 1, 1],
            shared_bytes: launch.shared_bytes,
            stream,
            attributes: &attribute,
            attribute_count: 1,
        };
        // SAFETY: the arguments are those of the kernel's signature in number, order and size, as the plan that made
        // them knows the kernel; addresses among them lie in buffers that live until the stream has passed the launch,
        // and are as large as the sizes beside them say; all is read before the call returns.
        let result = unsafe { (cuda.launch)(&config, function, pointers.as_ptr(), std::ptr::null()) };
        cuda.check("cuLaunchKernelEx", result)
    }

    fn staging(&self) -> std::sync::MutexGuard<'_, Staging> {
        self.staging.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Driver for Card {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn free_bytes(&self) -> Result<u64, CudaError> {
        let (cuda, mut free, mut total) = (self.enter()?, 0, 0);
        // SAFETY: the context is current; the driver sets both numbers.
        cuda.check("cuMemGetInfo", unsafe { (cuda.memory_info)(&mut free, &mut total) })?;
        Ok(free as u64)
    }

    fn allocate(&self, bytes: usize) -> Result<Address, CudaError> {
        let (cuda, mut address) = (self.enter()?, 0);
        // SAFETY: the context is current; the driver sets the address.
        let result = unsafe { (cuda.allocate)(&mut address, bytes) };
        if result == api::OUT_OF_MEMORY {
            return Err(CudaError::OutOfMemory { needed: bytes as u64, free: self.free_bytes()? });
        }
        cuda.check("cuMemAlloc", result)?;
        Ok(Address(address))
    }

    fn free(&self, address: Address) {
        // A driver that fails here has failed before, and will again where it can be said.
        let Ok(cuda) = self.enter() else { return };
        // SAFETY: the address was given by `allocate` and is given back once, by the buffer that owns it, when no
        // launched work names it any more.
        unsafe {
            (cuda.synchronize)(self.stream);
            (cuda.free)(address.0);
        }
    }

    fn load(&self, variant: &Variant, entry: &'static str, code: &[u8]) -> Result<Kernel, CudaError> {
        let (cuda, mut module, mut function) = (self.enter()?, 0, 0);
        let name = CString::new(entry).expect("entries are words");
        // SAFETY: the code is a whole cubin, as its checksum said or the compiler made it, and is read before the call
        // returns; the module is kept until `self` is dropped.
        unsafe {
            cuda.check("cuModuleLoadData", (cuda.load_module)(&mut module, code.as_ptr().cast()))?;
            self.modules.lock().unwrap_or_else(PoisonError::into_inner).push(module);
            let result = (cuda.function)(&mut function, module, name.as_ptr());
            cuda.check("cuModuleGetFunction", result)?;
        }
        Ok(Kernel { entry, variant: *variant, handle: function })
    }

    fn launch(&self, launch: &Launch<'_>) -> Result<(), CudaError> {
        self.launch_on(self.stream, launch)
    }

    fn capture(&self, launches: &[Launch<'_>]) -> Result<GraphHandle, CudaError> {
        let cuda = self.enter()?;
        let stream = self.capture_stream.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the stream is this thread's as long as the lock is held, and captures nothing yet.
        let begun = unsafe { (cuda.begin_capture)(*stream, api::CAPTURE_OF_THREAD) };
        cuda.check("cuStreamBeginCapture", begun)?;
        let launched = launches.iter().try_for_each(|launch| self.launch_on(*stream, launch));
        let (mut captured, mut graph) = (0, 0);
        // SAFETY: the capture was begun above and is ended whatever became of it; the driver sets the handle.
        let ended = unsafe { (cuda.end_capture)(*stream, &mut captured) };
        launched?;
        cuda.check("cuStreamEndCapture", ended)?;
        // SAFETY: what was captured is a graph, which is no longer needed when it was made ready; that lives until `forget`.
        unsafe {
            let made = (cuda.make_graph)(&mut graph, captured, 0);
            (cuda.destroy_captured)(captured);
            cuda.check("cuGraphInstantiate", made)?;
            cuda.check("cuGraphUpload", (cuda.upload_graph)(graph, self.stream))?;
        }
        Ok(GraphHandle(graph as u64))
    }

    fn replay(&self, graph: GraphHandle) -> Result<(), CudaError> {
        let cuda = self.enter()?;
        // SAFETY: the graph was made by `capture` and not forgotten; the buffers that its kernels name live, as its owner sees to.
        let result = unsafe { (cuda.launch_graph)(graph.0 as Handle, self.stream) };
        cuda.check("cuGraphLaunch", result)
    }

    fn forget(&self, graph: GraphHandle) {
        // A driver that fails here has failed before, and will again where it can be said.
        let Ok(cuda) = self.enter() else { return };
        // SAFETY: the graph was made by `capture` and is forgotten once, by its owner; the driver keeps what still runs.
        unsafe { (cuda.destroy_graph)(graph.0 as Handle) };
    }

    fn fill(&self, address: Address, bytes: usize, value: u8) -> Result<(), CudaError> {
        let cuda = self.enter()?;
        // SAFETY: the bytes lie in a buffer that lives until the stream has passed this.
        let result = unsafe { (cuda.fill)(address.0, value, bytes, self.stream) };
        cuda.check("cuMemsetD8Async", result)
    }

    fn upload(&self, to: Address, bytes: &[u8]) -> Result<(), CudaError> {
        self.enter()?;
        self.staging().upload(self.stream, to.0, bytes)
    }

    fn download(&self, to: &mut [u8], from: Address) -> Result<(), CudaError> {
        self.enter()?;
        self.staging().download(self.stream, to, from.0)
    }

    fn pin(&self, bytes: usize) -> Result<Option<Pinned>, CudaError> {
        let memory = staging::pinned(self.enter()?, bytes)?;
        Ok(Some(Pinned { address: memory.expose_provenance(), bytes }))
    }

    fn unpin(&self, pinned: Pinned) {
        let Ok(cuda) = self.enter() else { return };
        let memory = std::ptr::with_exposed_provenance_mut::<c_void>(pinned.address);
        // SAFETY: the driver made it, and copies into it are waited for by the call that began them.
        unsafe { (cuda.free_pinned)(memory) };
    }

    fn land(&self, to: &mut Pinned, at: usize, from: Address, bytes: usize) -> Result<(), CudaError> {
        assert!(at + bytes <= to.bytes, "a copy is at most what was pinned");
        let cuda = self.enter()?;
        let memory = std::ptr::with_exposed_provenance_mut::<c_void>(to.address + at);
        // SAFETY: so many bytes were pinned there, and nobody looks at them until a later mark has come.
        let result = unsafe { (cuda.copy_out)(memory, from.0, bytes, self.stream) };
        cuda.check("cuMemcpyDtoHAsync", result)
    }

    fn await_mark(&self, Mark(event): Mark) -> Result<(), CudaError> {
        let cuda = self.enter()?;
        // SAFETY: the event was recorded, and ends once, as its mark was taken.
        unsafe {
            let result = (cuda.wait_event)(event as Handle);
            (cuda.destroy_event)(event as Handle);
            cuda.check("cuEventSynchronize", result)
        }
    }

    fn copy(&self, to: Address, from: Address, bytes: usize) -> Result<(), CudaError> {
        let cuda = self.enter()?;
        // SAFETY: both lie in buffers that live until the stream has passed the copy.
        let result = unsafe { (cuda.copy_within)(to.0, from.0, bytes, self.stream) };
        cuda.check("cuMemcpyDtoDAsync", result)
    }

    fn tensor_map(&self, map: &TensorMap) -> Result<[u8; TENSOR_MAP_BYTES], CudaError> {
        let cuda = self.enter()?;
        let mut encoded = EncodedMap([0; TENSOR_MAP_BYTES]);
        let sizes = [map.columns as u64, map.rows as u64];
        let stride = [map.columns as u64 * size_of::<u16>() as u64];
        let (boxes, steps) = ([BOX_COLUMNS, map.box_rows as u32], [1, 1]);
        // SAFETY: the map has the alignment and size that the driver writes, and all lists are of two dimensions, the
        // strides of one, read before the call returns; the address lies in a buffer of so many rows.
        let result = unsafe {
            (cuda.encode_map)(
                encoded.0.as_mut_ptr().cast(),
                api::NUMBERS_OF_16_BITS,
                2,
                map.address.0,
                sizes.as_ptr(),
                stride.as_ptr(),
                boxes.as_ptr(),
                steps.as_ptr(),
                0,
                api::SWIZZLE_128,
                api::PROMOTION_128,
                0,
            )
        };
        cuda.check("cuTensorMapEncodeTiled", result)?;
        Ok(encoded.0)
    }

    fn synchronize(&self) -> Result<(), CudaError> {
        let cuda = self.enter()?;
        // SAFETY: the stream lives.
        cuda.check("cuStreamSynchronize", unsafe { (cuda.synchronize)(self.stream) })
    }

    fn mark(&self) -> Result<Mark, CudaError> {
        let (cuda, mut event) = (self.enter()?, 0);
        // SAFETY: the driver sets the handle that it makes; the stream lives.
        unsafe {
            cuda.check("cuEventCreate", (cuda.create_event)(&mut event, 0))?;
            cuda.check("cuEventRecord", (cuda.record_event)(event, self.stream))?;
        }
        Ok(Mark(event as u64))
    }

    fn times(&self, marks: Vec<Mark>) -> Result<Vec<Duration>, CudaError> {
        self.synchronize()?;
        let events: Vec<Handle> = marks.into_iter().map(|Mark(event)| event as Handle).collect();
        let since_first = |event: &Handle| {
            let mut milliseconds = 0.0;
            // SAFETY: both events were recorded and have come.
            let result = unsafe { (self.cuda.elapsed)(&mut milliseconds, events[0], *event) };
            self.cuda.check("cuEventElapsedTime", result)?;
            Ok(Duration::from_secs_f32(milliseconds.max(0.0) / 1e3))
        };
        let times = events.iter().map(since_first).collect();
        for event in &events {
            // SAFETY: each event ends once, as its mark was taken.
            unsafe { (self.cuda.destroy_event)(*event) };
        }
        times
    }
}

impl Drop for Card {
    fn drop(&mut self) {
        if self.synchronize().is_err() {
            return; // The context is lost, and everything in it.
        }
        self.staging().free();
        let modules = std::mem::take(&mut *self.modules.lock().unwrap_or_else(PoisonError::into_inner));
        // SAFETY: the stream is idle and nothing else uses what is given back.
        unsafe {
            modules.into_iter().for_each(|module| {
                (self.cuda.unload_module)(module);
            });
            (self.cuda.destroy_stream)(self.stream);
            (self.cuda.destroy_stream)(*self.capture_stream.lock().unwrap_or_else(PoisonError::into_inner));
            (self.cuda.release_context)(self.device);
        }
    }
}

/// Where an argument's bytes lie.
fn pointer_to(argument: &Argument) -> *const c_void {
    match argument {
        Argument::Address(Address(number)) | Argument::U64(number) => std::ptr::from_ref(number).cast(),
        Argument::U32(number) => std::ptr::from_ref(number).cast(),
        Argument::F32(number) => std::ptr::from_ref(number).cast(),
    }
}

/// The device of this number.
fn device(cuda: &Cuda, asked: u32) -> Result<c_int, CudaError> {
    let (mut count, mut device) = (0, 0);
    // SAFETY: the driver was initialised and sets the number.
    cuda.check("cuDeviceGetCount", unsafe { (cuda.device_count)(&mut count) })?;
    if count == 0 {
        return Err(CudaError::NoDevice(String::new()));
    }
    let number = c_int::try_from(asked).ok().filter(|number| *number < count);
    let number = number.ok_or(CudaError::UnknownDevice { asked, found: count.unsigned_abs() })?;
    // SAFETY: as above.
    cuda.check("cuDeviceGet", unsafe { (cuda.device)(&mut device, number) })?;
    Ok(device)
}

fn properties(cuda: &Cuda, device: c_int) -> Result<Properties, CudaError> {
    let attribute = |which: c_int| {
        let mut value = 0;
        // SAFETY: the device exists; the driver sets the number.
        cuda.check("cuDeviceGetAttribute", unsafe { (cuda.device_attribute)(&mut value, which, device) })?;
        Ok(value.unsigned_abs())
    };
    let (mut name, mut memory_bytes, mut driver_version) = ([0 as c_char; NAME_BYTES], 0, 0);
    // SAFETY: the driver writes at most so many bytes of the name, and sets the numbers.
    unsafe {
        let result = (cuda.device_name)(name.as_mut_ptr(), NAME_BYTES as c_int, device);
        cuda.check("cuDeviceGetName", result)?;
        cuda.check("cuDeviceTotalMem", (cuda.device_memory)(&mut memory_bytes, device))?;
        cuda.check("cuDriverGetVersion", (cuda.driver_version)(&mut driver_version))?;
    }
    let name: Vec<u8> = name.iter().take_while(|byte| **byte != 0).map(|byte| *byte as u8).collect();
    let name = String::from_utf8_lossy(&name).into_owned();
    let (major, minor) = (attribute(api::MAJOR)?, attribute(api::MINOR)?);
    let architecture = Architecture::new(major, minor);
    if !architecture.is_known() {
        return Err(CudaError::OldDevice { name, major, minor, needed: "8.0" });
    }
    Ok(Properties {
        name,
        architecture: Some(architecture),
        memory_bytes: memory_bytes as u64,
        processors: attribute(api::PROCESSORS)?,
        shared_bytes: attribute(api::BLOCK_SHARED_BYTES)?,
        driver_version: driver_version.unsigned_abs(),
    })
}
