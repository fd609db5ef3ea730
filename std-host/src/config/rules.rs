//! The rules of a context for its group of devices. Which device a thread names is kept with the thread.

use super::spec::Spec;
use gradlet_core::device::{Now, Placement};
use gradlet_core::{Error, Result};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

thread_local! {
    /// Devices that open guards of this thread name, the innermost one last.
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
    /// Number of open guards. Every op asks, and this is faster to read than the list.
    static OPEN: Cell<usize> = const { Cell::new(0) };
}

struct Entered {
    /// Number of the rules.
    rules: u64,
    number: u64,
    device: Option<u32>,
}

/// Receiver of the lines of a placement log.
type Log = Arc<dyn Fn(&str) + Send + Sync>;

pub(super) struct Rules {
    number: u64,
    next: AtomicU64,
    soft: AtomicBool,
    logs: AtomicBool,
    log: Mutex<Log>,
    /// Types and indices of the devices, in the order of the group. They are known once the devices exist.
    devices: OnceLock<Vec<(String, u32)>>,
}

impl Rules {
    pub(super) fn new() -> Rules {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        Rules {
            number: NUMBER.fetch_add(1, Ordering::Relaxed),
            next: AtomicU64::new(0),
            soft: AtomicBool::new(true),
            logs: AtomicBool::new(false),
            log: Mutex::new(Arc::new(|line| eprintln!("{line}"))),
            devices: OnceLock::new(),
        }
    }

    /// Sets the types and indices of the devices.
    pub(super) fn set_devices(&self, devices: Vec<(String, u32)>) {
        let _ = self.devices.set(devices);
    }

    pub(super) fn set_soft(&self, soft: bool) {
        self.soft.store(soft, Ordering::Relaxed);
    }

    pub(super) fn set_logs(&self, logs: bool) {
        self.logs.store(logs, Ordering::Relaxed);
    }

    pub(super) fn set_log(&self, log: Log) {
        *self.log.lock().unwrap_or_else(PoisonError::into_inner) = log;
    }

    /// True if placements are logged.
    pub(super) fn logs(&self) -> bool {
        self.logs.load(Ordering::Relaxed)
    }

    /// Returns the device of the innermost open guard of this thread.
    fn named(&self) -> Option<u32> {
        ENTERED.with_borrow(|entered| entered.iter().rev().find(|one| one.rules == self.number).and_then(|one| one.device))
    }

    /// Returns the index of the device that `name` names exactly. Fails with a list of the devices if there is none.
    pub(super) fn exactly(&self, name: &str) -> Result<u32> {
        let spec = Spec::parse(name)?;
        self.index(&spec, spec.index.unwrap_or(0)).ok_or_else(|| self.missing(name))
    }

    fn index(&self, spec: &Spec, index: u32) -> Option<u32> {
        let own = |(kind, number): &(String, u32)| spec.kind.as_deref().is_none_or(|wanted| wanted == kind) && *number == index;
        let found = self.devices.get()?.iter().position(own).filter(|_| !spec.remote);
        found.map(|found| found as u32)
    }

    fn missing(&self, name: &str) -> Error {
        let devices = self.devices.get().map(Vec::as_slice).unwrap_or_default();
        let names: Vec<String> = devices.iter().map(|(kind, index)| format!("{kind}:{index}")).collect();
        Error::message(format!("there is no device {name:?}: there are {}", names.join(", ")))
    }
}

impl Placement for Rules {
    fn find(&self, name: &str) -> Result<Option<u32>> {
        let spec = Spec::parse(name)?;
        if spec == Spec::default() {
            return Ok(self.named());
        }
        if spec.remote {
            return Err(self.missing(name));
        }
        // A name without an index keeps that of the enclosing one, as in TensorFlow.
        let outer = self.named().and_then(|outer| self.devices.get()?.get(outer as usize));
        let index = spec.index.or(outer.map(|(_, index)| *index)).unwrap_or(0);
        match self.index(&spec, index) {
            None if !self.is_soft() => Err(self.missing(name)),
            found => Ok(found),
        }
    }

    fn enter(&self, device: Option<u32>) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        ENTERED.with_borrow_mut(|entered| entered.push(Entered { rules: self.number, number, device }));
        OPEN.set(OPEN.get() + 1);
        number
    }

    fn leave(&self, entered: u64) {
        ENTERED.with_borrow_mut(|all| {
            // Guards may be dropped in any order.
            if let Some(index) = all.iter().rposition(|one| one.rules == self.number && one.number == entered) {
                all.remove(index);
                OPEN.set(OPEN.get() - 1);
            }
        });
    }

    #[inline]
    fn now(&self) -> Now {
        let named = if OPEN.get() == 0 { None } else { self.named() };
        Now { named, logs: self.logs.load(Ordering::Relaxed) }
    }

    fn is_soft(&self) -> bool {
        self.soft.load(Ordering::Relaxed)
    }

    fn log(&self, line: fmt::Arguments<'_>) {
        let log = self.log.lock().unwrap_or_else(PoisonError::into_inner).clone();
        log(&line.to_string());
    }
}
