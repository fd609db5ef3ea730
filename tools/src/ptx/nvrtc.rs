//! NVIDIA's compiler for CUDA C, a C library. Its functions are unsafe to call, and only this module calls them.
#![allow(unsafe_code)]

use anyhow::{Context, Result, bail, ensure};
use libloading::Library;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;
use std::ptr::null;

type Program = *mut c_void;
type Create = unsafe extern "C" fn(*mut Program, *const c_char, *const c_char, c_int, *const *const c_char, *const *const c_char) -> c_int;
type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
type Size = unsafe extern "C" fn(Program, *mut usize) -> c_int;
type Text = unsafe extern "C" fn(Program, *mut c_char) -> c_int;
type Destroy = unsafe extern "C" fn(*mut Program) -> c_int;

/// The loaded library.
pub struct Nvrtc {
    library: Library,
}

impl Nvrtc {
    /// Loads the library.
    pub fn load(path: &Path) -> Result<Nvrtc> {
        // SAFETY: the library is NVRTC, whose initialisers have no conditions.
        let library = unsafe { Library::new(path) }.with_context(|| format!("cannot load {}", path.display()))?;
        Ok(Nvrtc { library })
    }

    /// Compiles `source`, a file of this name, to PTX. Fails with the compiler's log.
    pub fn compile(&self, name: &str, source: &str, options: &[String]) -> Result<String> {
        let (name, source) = (CString::new(name)?, CString::new(source)?);
        let owned = options.iter().map(|option| Ok(CString::new(option.as_str())?)).collect::<Result<Vec<_>>>()?;
        let options: Vec<_> = owned.iter().map(|option| option.as_ptr()).collect();
        let mut program: Program = std::ptr::null_mut();
        // SAFETY: the types are those of NVRTC's header, the strings live until the calls return, and no header is passed.
        let compiled = unsafe {
            let create = self.library.get::<Create>(b"nvrtcCreateProgram\0")?;
            let compile = self.library.get::<Compile>(b"nvrtcCompileProgram\0")?;
            let created = create(&mut program, source.as_ptr(), name.as_ptr(), 0, null(), null());
            ensure!(created == 0, "NVRTC's error {created}");
            compile(program, options.len() as c_int, options.as_ptr())
        };
        let text = if compiled == 0 { self.text(program, "nvrtcGetPTX") } else { self.text(program, "nvrtcGetProgramLog") };
        // SAFETY: the program was created, and nobody uses it any more.
        unsafe { self.library.get::<Destroy>(b"nvrtcDestroyProgram\0")?(&mut program) };
        match text {
            Ok(log) if compiled != 0 => bail!("NVRTC's error {compiled}:\n{log}"),
            text => text,
        }
    }

    /// Returns the text of a program that the function of this name writes. The function `nameSize` gives its length.
    fn text(&self, program: Program, name: &str) -> Result<String> {
        let mut length = 0;
        // SAFETY: the types are those of NVRTC's header, and the program exists.
        let result = unsafe { self.library.get::<Size>(format!("{name}Size\0").as_bytes())?(program, &mut length) };
        ensure!(result == 0, "{name}Size: NVRTC's error {result}");
        let mut bytes = vec![0u8; length.max(1)];
        // SAFETY: the buffer has the length that the library has asked for.
        let result = unsafe { self.library.get::<Text>(format!("{name}\0").as_bytes())?(program, bytes.as_mut_ptr().cast()) };
        ensure!(result == 0, "{name}: NVRTC's error {result}");
        Ok(CStr::from_bytes_until_nul(&bytes)?.to_str()?.to_string())
    }
}
