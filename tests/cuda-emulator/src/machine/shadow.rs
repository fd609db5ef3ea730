//! The last accesses of each byte or word of shared memory, and their meaning for the next one.
//!
//! A clock counts synchronizations: barriers of a block and of a warp. An access is ordered before another one of the same block if
//! the block's last barrier, or the last synchronization of the warp that both belong to, lies between them.

/// When and by whom memory is accessed.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    pub now: u32,
    /// The thread's number in its block.
    pub thread: u16,
    /// The time when the block began.
    pub begin: u32,
    /// The time of the block's last barrier.
    pub barrier: u32,
    /// The time of the warp's last synchronization.
    pub warp: u32,
}

/// The last accesses to a byte or word. The default is memory that nobody accessed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    written: u32,
    read: u32,
    writer: u16,
    reader: u16,
}

/// Flag of a writer: its write was atomic.
const ATOMIC: u16 = 0x8000;
/// Flag of a reader: several threads of a warp, whose number follows.
const WARP: u16 = 0x4000;
/// Several warps of the block.
const WARPS: u16 = 0x2000;
/// Several blocks.
const BLOCKS: u16 = 0x2001;

/// An earlier access that the next one is not ordered after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The other thread, if it is known.
    pub thread: Option<u16>,
    /// Its time.
    pub time: u32,
    /// Whether it wrote.
    pub wrote: bool,
}

impl Cell {
    /// Whether the block has written it.
    #[inline(always)]
    pub fn is_written(&self, moment: &Moment) -> bool {
        self.written >= moment.begin
    }

    /// Notes a load of a byte that the block wrote before its last barrier. Else does nothing.
    #[inline(always)]
    pub fn read_quickly(&mut self, moment: &Moment) -> bool {
        if self.written < moment.begin || self.written >= moment.barrier {
            return false;
        }
        self.reader = if self.read < moment.barrier { moment.thread } else { self.readers(moment, false) };
        self.read = moment.now;
        true
    }

    /// Notes a store to a byte that nobody has accessed since the last barrier. Else does nothing.
    #[inline(always)]
    pub fn write_quickly(&mut self, moment: &Moment) -> bool {
        let quiet = self.written < moment.barrier && self.read < moment.barrier;
        if quiet {
            (self.written, self.writer) = (moment.now, moment.thread);
        }
        quiet
    }

    /// Notes a load. `across`: whether accesses of other blocks count; they are never ordered.
    pub fn read(&mut self, moment: &Moment, across: bool) -> Option<Clash> {
        let writer = self.writer & !ATOMIC;
        let clash =
            unordered(self.written, writer, moment, across).then_some(Clash { thread: Some(writer), time: self.written, wrote: true });
        self.reader = self.readers(moment, across);
        self.read = moment.now;
        clash
    }

    /// The readers that are left to remember when one more reads.
    #[inline(always)]
    fn readers(&self, moment: &Moment, across: bool) -> u16 {
        let warp = moment.thread / 32;
        if self.read < moment.begin {
            return if across && self.read != 0 { BLOCKS } else { moment.thread };
        }
        match self.reader {
            BLOCKS => BLOCKS,
            // A barrier orders them before all that follows.
            _ if self.read < moment.barrier => moment.thread,
            WARPS => WARPS,
            reader => {
                let other = if reader & WARP != 0 { reader & !WARP } else { reader / 32 };
                match other == warp {
                    false => WARPS,
                    true if reader == moment.thread || self.read < moment.warp => moment.thread,
                    true => WARP | warp,
                }
            }
        }
    }

    /// Checks a load that may meet atomic stores: a volatile or relaxed one. It is not noted.
    pub fn read_strongly(&self, moment: &Moment, across: bool) -> Option<Clash> {
        let clash = self.writer & ATOMIC == 0 && unordered(self.written, self.writer, moment, across);
        clash.then_some(Clash { thread: Some(self.writer), time: self.written, wrote: true })
    }

    /// Notes a store, or an atomic load and store.
    pub fn write(&mut self, moment: &Moment, atomic: bool, across: bool) -> Option<Clash> {
        let both_atomic = atomic && self.writer & ATOMIC != 0;
        let writer = self.writer & !ATOMIC;
        let clash = if !both_atomic && unordered(self.written, writer, moment, across) {
            Some(Clash { thread: Some(writer), time: self.written, wrote: true })
        } else {
            self.reader_clash(moment, across)
        };
        self.written = moment.now;
        self.writer = moment.thread | if atomic { ATOMIC } else { 0 };
        clash
    }

    fn reader_clash(&self, moment: &Moment, across: bool) -> Option<Clash> {
        let clash = |thread| Some(Clash { thread, time: self.read, wrote: false });
        if self.read == 0 || self.read < moment.begin && !across {
            return None;
        }
        match self.reader {
            BLOCKS => clash(None),
            WARPS => {
                if self.read < moment.begin || self.read >= moment.barrier {
                    clash(None)
                } else {
                    None
                }
            }
            reader if reader & WARP != 0 => {
                let ordered = self.read < moment.barrier || (reader & !WARP) == moment.thread / 32 && self.read < moment.warp;
                if self.read < moment.begin || !ordered { clash(None) } else { None }
            }
            reader => {
                if unordered(self.read, reader, moment, across) {
                    clash(Some(reader))
                } else {
                    None
                }
            }
        }
    }
}

/// Whether an access of a thread at a time is neither the same thread's nor ordered before the moment.
#[inline(always)]
fn unordered(time: u32, thread: u16, moment: &Moment, across: bool) -> bool {
    if time < moment.barrier {
        return across && time != 0 && time < moment.begin;
    }
    thread != moment.thread && !(thread / 32 == moment.thread / 32 && time < moment.warp)
}
