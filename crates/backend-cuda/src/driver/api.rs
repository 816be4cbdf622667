//! The functions of NVIDIA's driver that are used, found by name when the driver is there.
//!
//! A missing function is an error that names it, found when the library is opened and not when it is called. The
//! signatures are those of the driver API's reference; handles are pointers that only the driver looks behind, so they
//! are kept as numbers of their size.

use crate::error::CudaError;
use crate::libraries::{DRIVER, Places};
use libloading::Library;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::path::PathBuf;

/// A pointer that only the driver looks behind.
pub(super) type Handle = usize;

/// The oldest driver whose functions are all there.
const OLDEST: &str = "a driver for CUDA 12.0 (525)";

/// Attributes of a device by the driver's numbers.
pub(super) const PROCESSORS: c_int = 16;
pub(super) const BLOCK_SHARED_BYTES: c_int = 97;
pub(super) const MAJOR: c_int = 75;
pub(super) const MINOR: c_int = 76;
/// The attribute of a kernel that raises its dynamic shared memory.
pub(super) const DYNAMIC_SHARED_BYTES: c_int = 8;
/// The attribute of a launch by which a kernel may start before the one before it has ended.
pub(super) const PROGRAMMATIC_SERIALIZATION: c_uint = 6;
/// A mode of capture: what other threads do meanwhile is their own.
pub(super) const CAPTURE_OF_THREAD: c_int = 1;
/// Of a tensor map: numbers of 16 bits, a swizzle and a promotion of 128 bytes.
pub(super) const NUMBERS_OF_16_BITS: c_uint = 1;
pub(super) const SWIZZLE_128: c_uint = 3;
pub(super) const PROMOTION_128: c_uint = 2;
/// Out of memory, as a result.
pub(super) const OUT_OF_MEMORY: c_int = 2;

/// An attribute of a launch.
#[repr(C)]
pub(super) struct LaunchAttribute {
    pub(super) id: c_uint,
    pub(super) padding: u32,
    /// The union of all values; a number in its first four bytes here.
    pub(super) value: [u32; 16],
}

/// How a kernel is launched.
#[repr(C)]
pub(super) struct LaunchConfig {
    pub(super) grid: [c_uint; 3],
    pub(super) block: [c_uint; 3],
    pub(super) shared_bytes: c_uint,
    pub(super) stream: Handle,
    pub(super) attributes: *const LaunchAttribute,
    pub(super) attribute_count: c_uint,
}

macro_rules! functions {
    ($library:ident: $($name:ident = $symbol:literal, ($($argument:ty),*);)*) => {
        /// The library, and its functions.
        pub(super) struct $library {
            $(pub(super) $name: unsafe extern "system" fn($($argument),*) -> c_int,)*
            /// Where it was found.
            pub(super) path: String,
            // Keeps the functions in memory.
            _library: Library,
        }

        impl $library {
            fn of(library: Library, path: String, needed: &'static str) -> Result<Self, CudaError> {
                Ok(Self {
                    $($name: {
                        let symbol = concat!($symbol, "\0").as_bytes();
                        // SAFETY: the signature is that of the function of this name, by the library's reference, and
                        // the pointer is kept no longer than the library.
                        let found = unsafe { library.get::<unsafe extern "system" fn($($argument),*) -> c_int>(symbol) };
                        let missing = |_| CudaError::NoSymbol { library: path.clone(), symbol: $symbol, needed };
                        *found.map_err(missing)?
                    },)*
                    path,
                    _library: library,
                })
            }
        }
    };
}
pub(super) use functions;

functions! { Cuda:
    init = "cuInit", (c_uint);
    driver_version = "cuDriverGetVersion", (*mut c_int);
    error_name = "cuGetErrorName", (c_int, *mut *const c_char);
    error_string = "cuGetErrorString", (c_int, *mut *const c_char);
    device_count = "cuDeviceGetCount", (*mut c_int);
    device = "cuDeviceGet", (*mut c_int, c_int);
    device_name = "cuDeviceGetName", (*mut c_char, c_int, c_int);
    device_attribute = "cuDeviceGetAttribute", (*mut c_int, c_int, c_int);
    device_memory = "cuDeviceTotalMem_v2", (*mut usize, c_int);
    retain_context = "cuDevicePrimaryCtxRetain", (*mut Handle, c_int);
    release_context = "cuDevicePrimaryCtxRelease_v2", (c_int);
    set_context = "cuCtxSetCurrent", (Handle);
    memory_info = "cuMemGetInfo_v2", (*mut usize, *mut usize);
    allocate = "cuMemAlloc_v2", (*mut u64, usize);
    free = "cuMemFree_v2", (u64);
    allocate_pinned = "cuMemHostAlloc", (*mut *mut c_void, usize, c_uint);
    free_pinned = "cuMemFreeHost", (*mut c_void);
    copy_in = "cuMemcpyHtoDAsync_v2", (u64, *const c_void, usize, Handle);
    copy_out = "cuMemcpyDtoHAsync_v2", (*mut c_void, u64, usize, Handle);
    copy_within = "cuMemcpyDtoDAsync_v2", (u64, u64, usize, Handle);
    fill = "cuMemsetD8Async", (u64, u8, usize, Handle);
    begin_capture = "cuStreamBeginCapture_v2", (Handle, c_int);
    end_capture = "cuStreamEndCapture", (Handle, *mut Handle);
    make_graph = "cuGraphInstantiateWithFlags", (*mut Handle, Handle, u64);
    destroy_captured = "cuGraphDestroy", (Handle);
    upload_graph = "cuGraphUpload", (Handle, Handle);
    launch_graph = "cuGraphLaunch", (Handle, Handle);
    destroy_graph = "cuGraphExecDestroy", (Handle);
    create_stream = "cuStreamCreate", (*mut Handle, c_uint);
    destroy_stream = "cuStreamDestroy_v2", (Handle);
    synchronize = "cuStreamSynchronize", (Handle);
    create_event = "cuEventCreate", (*mut Handle, c_uint);
    destroy_event = "cuEventDestroy_v2", (Handle);
    record_event = "cuEventRecord", (Handle, Handle);
    wait_event = "cuEventSynchronize", (Handle);
    elapsed = "cuEventElapsedTime", (*mut f32, Handle, Handle);
    load_module = "cuModuleLoadData", (*mut Handle, *const c_void);
    unload_module = "cuModuleUnload", (Handle);
    function = "cuModuleGetFunction", (*mut Handle, Handle, *const c_char);
    set_function_attribute = "cuFuncSetAttribute", (Handle, c_int, c_int);
    encode_map = "cuTensorMapEncodeTiled", (
        *mut c_void,
        c_uint,
        c_uint,
        u64,
        *const u64,
        *const u64,
        *const u32,
        *const u32,
        c_uint,
        c_uint,
        c_uint,
        c_uint
    );
    launch = "cuLaunchKernelEx", (*const LaunchConfig, Handle, *const *const c_void, *const *const c_void);
}

impl Cuda {
    /// Opens the driver's library, by its name and then wherever it lies.
    pub(super) fn open(places: &Places) -> Result<Self, CudaError> {
        let paths = [vec![PathBuf::from(DRIVER)], places.find(DRIVER)].concat();
        let (library, path) = open_first(DRIVER, &paths, places)?;
        Self::of(library, path, OLDEST)
    }

    /// An error where a call failed.
    pub(super) fn check(&self, call: &'static str, result: c_int) -> Result<(), CudaError> {
        if result == 0 {
            return Ok(());
        }
        let words = [self.error_name, self.error_string].map(|describe| {
            let mut text: *const c_char = std::ptr::null();
            // SAFETY: the function sets the pointer to a text that lives as long as the library, or to null.
            let text = unsafe {
                describe(result, &mut text);
                (!text.is_null()).then(|| CStr::from_ptr(text))
            };
            text.map(|text| text.to_string_lossy().into_owned()).unwrap_or_default()
        });
        Err(CudaError::Call { call, reason: format!("error {result}, {}: {}", words[0], words[1]) })
    }
}

/// Opens the first of these libraries that can be opened.
pub(super) fn open_first(
    library: &'static str,
    paths: &[PathBuf],
    places: &Places,
) -> Result<(Library, String), CudaError> {
    let mut reason = "no file of this name".to_owned();
    for path in paths {
        // SAFETY: the library is NVIDIA's by its name and place; its initialisers are trusted as the driver itself is.
        match unsafe { Library::new(path) } {
            Ok(found) => return Ok((found, path.display().to_string())),
            Err(error) => reason = error.to_string(),
        }
    }
    Err(CudaError::NoLibrary { library, reason, looked_in: places.looked_in().join(", ") })
}
