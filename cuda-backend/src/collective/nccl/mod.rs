//! NCCL, NVIDIA's library of collective operations between GPUs: loaded at run time, with errors in place of numbers.

mod api;

use super::{Kind, Parts, Spread, kernels};
use crate::device::Part;
use crate::driver::api::Handle;
use crate::gpu::Context;
use crate::gpu::ahead::Begun;
use api::{Api, Communicator, IN_PROGRESS, SUM, Status};
use gradlet_core::{Error, Result};
use libloading::Library;
use std::ffi::{CStr, c_int};
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

/// Name of NCCL's library. NCCL exists for Linux only.
const NAME: &str = "libnccl.so.2";

/// NVIDIA's NCCL, loaded, with the communicators of the GPUs that used it last.
pub struct Nccl {
    api: Api,
    version: c_int,
    group: Mutex<Option<Group>>,
    /// The functions above are part of the library, which is therefore never closed before them.
    _library: Library,
}

/// The communicators of some GPUs, in the order of the replicas.
struct Group {
    contexts: Vec<Arc<Context>>,
    communicators: Vec<Communicator>,
}

// SAFETY: communicators are not tied to a thread, and have a lock.
unsafe impl Send for Group {}

impl Nccl {
    /// Loads the NCCL that is installed, for the GPUs of `parts`.
    ///
    /// Fails if there is none, or if the GPUs' driver was named by its path: then the path of NCCL must be named too.
    pub fn load(parts: &Parts<'_>) -> Result<Nccl> {
        if !parts.parts.iter().all(|part| part.device.stream().context().driver().is_installed()) {
            return Err(Error::message("the GPUs' driver is not the one that is installed: open NCCL by its path"));
        }
        // SAFETY: NCCL may be loaded at any time; its initialisers have no requirements.
        let library = unsafe { Library::new(NAME) }.map_err(|error| Error::message(format!("there is no NCCL: {error}")))?;
        // The library stays loaded: its threads may outlive the communicators.
        // SAFETY: as above.
        std::mem::forget(unsafe { Library::new(NAME) });
        Nccl::new(library, NAME)
    }

    /// Loads NCCL from the file `path`.
    ///
    /// # Safety
    ///
    /// The file is NVIDIA's NCCL, or a library with its functions, for the driver of the GPUs that use it.
    pub unsafe fn open(path: &Path) -> Result<Nccl> {
        // SAFETY: as above, and the caller names NCCL.
        let library = unsafe { Library::new(path) };
        let library = library.map_err(|error| Error::message(format!("{} is no NCCL: {error}", path.display())))?;
        Nccl::new(library, &path.display().to_string())
    }

    fn new(library: Library, name: &str) -> Result<Nccl> {
        let missing = |symbol| Error::message(format!("{name} has no {symbol}: gradlet needs NCCL 2.4 or later"));
        let (api, mut version) = (Api::find(&library).map_err(missing)?, 0);
        // SAFETY: the argument is a place for the version. Without an answer, it stays 0.
        unsafe { (api.version)(&mut version) };
        Ok(Nccl { api, version, group: Mutex::default(), _library: library })
    }

    /// Combines the tensors of replicas that have a GPU each. When it returns, the work is on the streams. The sum of two replicas has the
    /// bits of the ordered sum. NCCL chooses the order of more than two.
    ///
    /// Fails with the function, NCCL's text and the replicas. The communicators are then aborted.
    pub fn combine(&self, parts: &Parts<'_>) -> Result<()> {
        if parts.spread() != Spread::Apart {
            return Err(Error::message(format!("NCCL needs a GPU for each replica, not {}", parts.names())));
        }
        let mut kept = self.group.lock().unwrap_or_else(PoisonError::into_inner);
        let fits = |group: &Group| {
            let same = |(own, part): (&Arc<Context>, &&Part)| Arc::ptr_eq(own, part.device.stream().context());
            group.contexts.len() == parts.parts.len() && group.contexts.iter().zip(&parts.parts).all(same)
        };
        if let Some(other) = kept.take_if(|group| !fits(group)) {
            self.end(&other, self.api.destroy);
        }
        let named = |error: Error| error.context(format!("{self} between {}", parts.names()));
        let group = match kept.take() {
            Some(group) => group,
            None => self.group(&parts.parts).map_err(named)?,
        };
        match self.enqueue(&group, parts) {
            Ok(()) => {
                *kept = Some(group);
                Ok(())
            }
            Err(error) => {
                self.end(&group, self.api.abort);
                Err(named(error))
            }
        }
    }

    /// Creates the communicators of the GPUs of `parts`.
    fn group(&self, parts: &[&Part]) -> Result<Group> {
        let contexts: Vec<Arc<Context>> = parts.iter().map(|part| part.device.stream().context().clone()).collect();
        let gpus: Vec<c_int> = contexts.iter().map(|context| context.gpu()).collect();
        let mut communicators = vec![std::ptr::null_mut(); gpus.len()];
        // SAFETY: there are as many places and numbers of GPUs as stated.
        let status = unsafe { (self.api.init_all)(communicators.as_mut_ptr(), gpus.len() as c_int, gpus.as_ptr()) };
        self.check("ncclCommInitAll", status)?;
        Ok(Group { contexts, communicators })
    }

    /// Puts the work of all replicas on their streams.
    fn enqueue(&self, group: &Group, parts: &Parts<'_>) -> Result<()> {
        for &communicator in &group.communicators {
            let mut failed = 0;
            // SAFETY: the communicator exists, and the second argument is a place for the status.
            self.check("ncclCommGetAsyncError", unsafe { (self.api.async_error)(communicator, &mut failed) })?;
            if failed != IN_PROGRESS {
                self.check("an earlier operation", failed)?;
            }
        }
        let works = parts.parts.iter().map(|part| part.device.work()).collect::<Result<Vec<Begun<'_>>>>()?;
        // SAFETY: the function has no requirements.
        self.check("ncclGroupStart", unsafe { (self.api.group_start)() })?;
        let ranks = parts.parts.iter().zip(&group.communicators).zip(&works);
        let queued = ranks.map(|((part, communicator), work)| self.enqueue_one(part, parts.kind, *communicator, work.stream));
        let queued = queued.collect::<Result<Vec<()>>>();
        // A group that was started is ended in any case.
        // SAFETY: as above.
        let ended = self.check("ncclGroupEnd", unsafe { (self.api.group_end)() });
        queued.and(ended)?;
        if parts.kind != Kind::Mean {
            return Ok(());
        }
        parts.parts.iter().try_for_each(|part| kernels::divide(part, parts.parts.len()))
    }

    /// Puts the work of one replica on its stream.
    fn enqueue_one(&self, part: &Part, kind: Kind, communicator: Communicator, stream: Handle) -> Result<()> {
        let number = api::number(part.dtype()).ok_or(Error::Internal)?;
        part.tensors.iter().filter(|[.., elements]| *elements > 0).try_for_each(|&[input, output, elements]| {
            let (input, output, count) = (input as *const _, output as *mut _, elements as usize);
            if kind == Kind::First {
                // SAFETY: input and output are memory of the communicator's GPU, with as many elements as stated, until later work of the
                // stream. The first replica is the root.
                let status = unsafe { (self.api.broadcast)(input, output, count, number, 0, communicator, stream) };
                return self.check("ncclBroadcast", status);
            }
            // SAFETY: as above.
            let status = unsafe { (self.api.all_reduce)(input, output, count, number, SUM, communicator, stream) };
            self.check("ncclAllReduce", status)
        })
    }

    /// Ends the communicators of a group by `function`. What fails stays until the end of the process.
    fn end(&self, group: &Group, function: unsafe extern "C" fn(Communicator) -> Status) {
        for &communicator in group.communicators.iter().filter(|communicator| !communicator.is_null()) {
            // SAFETY: nothing else has the communicator.
            unsafe { function(communicator) };
        }
    }

    /// Turns the status of a call of `function` into a result.
    fn check(&self, function: &str, status: Status) -> Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the function returns a static text with a zero at its end.
        let text = unsafe { CStr::from_ptr((self.api.error_string)(status)) };
        Err(Error::message(format!("{function} failed with NCCL's error {status}: {}", text.to_string_lossy())))
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if let Some(group) = self.group.lock().unwrap_or_else(PoisonError::into_inner).take() {
            self.end(&group, self.api.destroy);
        }
    }
}

impl fmt::Display for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // From 2.9 on, NCCL counts 2.21.5 as 22105; before, 2.8.4 was 2804.
        let scale = if self.version < 10_000 { 1000 } else { 10_000 };
        write!(f, "NCCL {}.{}.{}", self.version / scale, self.version % scale / 100, self.version % 100)
    }
}

impl fmt::Debug for Nccl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
