//! NVRTC, the library that compiles CUDA C++ to machine code, where a toolkit or a Python package brought it.

use super::Architecture;
use super::api::{Handle, functions, open_first};
use crate::error::CudaError;
use crate::libraries::{NVRTC, Places};
use libloading::Library;
use std::ffi::{CString, c_char, c_int};
use std::path::Path;

/// The oldest that knows all architectures which kernels are tested for.
const OLDEST: &str = "CUDA 12.8";
/// The other half of the compiler, which it looks for only where the system's loader does.
const BUILTINS: &str = "libnvrtc-builtins.so";

functions! { Library_:
    version = "nvrtcVersion", (*mut c_int, *mut c_int);
    create = "nvrtcCreateProgram",
        (*mut Handle, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char);
    destroy = "nvrtcDestroyProgram", (*mut Handle);
    compile = "nvrtcCompileProgram", (Handle, c_int, *const *const c_char);
    log_bytes = "nvrtcGetProgramLogSize", (Handle, *mut usize);
    log = "nvrtcGetProgramLog", (Handle, *mut c_char);
    code_bytes = "nvrtcGetCUBINSize", (Handle, *mut usize);
    code = "nvrtcGetCUBIN", (Handle, *mut c_char);
}

/// The compiler.
pub(crate) struct Nvrtc {
    library: Library_,
    /// Kept in memory for the compiler.
    _builtins: Option<Library>,
    version: (u32, u32),
}

/// A kernel's source and what it includes, by name.
pub(crate) struct Source<'a> {
    pub(crate) name: &'a str,
    pub(crate) text: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) options: &'a [String],
}

impl Nvrtc {
    /// Opens the first that is found.
    pub(crate) fn open(places: &Places) -> Result<Self, CudaError> {
        let paths = places.find(NVRTC);
        let builtins = paths.iter().filter_map(|path| path.parent()).find_map(open_builtins);
        let (library, path) = open_first(NVRTC, &paths, places)?;
        let library = Library_::of(library, path, OLDEST)?;
        let (mut major, mut minor) = (0, 0);
        // SAFETY: the function sets both numbers.
        let result = unsafe { (library.version)(&mut major, &mut minor) };
        if result != 0 {
            return Err(CudaError::Call { call: "nvrtcVersion", reason: format!("error {result}") });
        }
        let version = (major.unsigned_abs(), minor.unsigned_abs());
        Ok(Self { library, _builtins: builtins, version })
    }

    /// Such as `13.0`.
    pub(crate) fn version(&self) -> String {
        let (major, minor) = self.version;
        format!("{major}.{minor}")
    }

    /// Where it was found.
    pub(crate) fn path(&self) -> &str {
        &self.library.path
    }

    /// Compiles to the machine code of an architecture; the compiler's log where it can't.
    pub(crate) fn compile(&self, source: &Source<'_>, architecture: Architecture) -> Result<Vec<u8>, String> {
        let own = source.options.iter().cloned();
        let options: Vec<String> = own.chain([format!("--gpu-architecture={architecture}")]).collect();
        let program = Program::new(&self.library, source)?;
        let options: Vec<CString> = options.iter().map(|option| text(option)).collect();
        let pointers: Vec<*const c_char> = options.iter().map(|option| option.as_ptr()).collect();
        // SAFETY: the program lives, and the options until the call returns.
        let result =
            unsafe { (self.library.compile)(program.handle, pointers.len() as c_int, pointers.as_ptr()) };
        if result != 0 {
            return Err(program.log());
        }
        program.code()
    }
}

/// A program of the compiler, which ends when it is dropped.
struct Program<'a> {
    library: &'a Library_,
    handle: Handle,
}

impl<'a> Program<'a> {
    fn new(library: &'a Library_, source: &Source<'_>) -> Result<Self, String> {
        let (code, name) = (text(source.text), text(source.name));
        let headers: Vec<CString> = source.headers.iter().map(|(_, header)| text(header)).collect();
        let names: Vec<CString> = source.headers.iter().map(|(name, _)| text(name)).collect();
        let pointers =
            |texts: &[CString]| texts.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (headers, names, mut handle) = (pointers(&headers), pointers(&names), 0);
        // SAFETY: all texts end with a zero byte and are copied before the call returns; there are as many headers as
        // names; the function sets the handle.
        let result = unsafe {
            (library.create)(
                &mut handle,
                code.as_ptr(),
                name.as_ptr(),
                headers.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        if result == 0 { Ok(Self { library, handle }) } else { Err(format!("NVRTC error {result}")) }
    }

    fn log(&self) -> String {
        let Ok(bytes) = self.read(self.library.log_bytes, self.library.log) else {
            return "the compiler says nothing".to_owned();
        };
        String::from_utf8_lossy(&bytes).trim_end_matches('\0').trim().to_owned()
    }

    fn code(&self) -> Result<Vec<u8>, String> {
        self.read(self.library.code_bytes, self.library.code)
    }

    /// What a pair of functions gives: how many bytes, and the bytes.
    fn read(
        &self,
        size: unsafe extern "system" fn(Handle, *mut usize) -> c_int,
        fill: unsafe extern "system" fn(Handle, *mut c_char) -> c_int,
    ) -> Result<Vec<u8>, String> {
        let mut bytes = 0;
        // SAFETY: the program lives; the first function says how many bytes the second one writes.
        unsafe {
            let result = size(self.handle, &mut bytes);
            let mut text = vec![0u8; if result == 0 { bytes } else { 0 }];
            let result = if result == 0 { fill(self.handle, text.as_mut_ptr().cast()) } else { result };
            if result == 0 { Ok(text) } else { Err(format!("NVRTC error {result}")) }
        }
    }
}

impl Drop for Program<'_> {
    fn drop(&mut self) {
        // SAFETY: the program lives and ends here.
        unsafe { (self.library.destroy)(&mut self.handle) };
    }
}

fn text(text: &str) -> CString {
    CString::new(text).expect("sources and options have no zero byte")
}

fn open_builtins(folder: &Path) -> Option<Library> {
    let names = std::fs::read_dir(folder).ok()?.flatten().map(|entry| entry.file_name());
    let mut names = names.filter(|name| name.to_string_lossy().starts_with(BUILTINS));
    let path = folder.join(names.next()?);
    // SAFETY: the library is NVIDIA's by its name and place, and has no functions that run when it is opened.
    unsafe { Library::new(path) }.ok()
}
