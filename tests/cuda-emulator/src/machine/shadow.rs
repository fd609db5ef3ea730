//! The last accesses of each byte or word of shared memory, and their meaning for the next one.
//!
//! A clock counts synchronizations: barriers of a block, of some of its warps, and of a warp. An access is ordered before another one of
//! the same block if such a synchronization, which both threads take part in, lies between them.

/// When and by whom memory is accessed.
#[derive(Clone, Copy, Debug)]
pub struct Moment<'w> {
    pub now: u32,
    /// The thread's number in its block.
    pub thread: u16,
    /// The time when the block began.
    pub begin: u32,
    /// The time of the last barrier of the whole block.
    pub barrier: u32,
    /// The time of the warp's last synchronization.
    pub warp: u32,
    /// For each warp of the block: the time up to which barriers of some warps order its accesses before this one. Empty if the kernel has
    /// no such barriers.
    pub seen: &'w [u32],
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
/// Time of a write that a copy has begun, and that has no time yet because nobody has waited for it.
const IN_FLIGHT: u32 = u32::MAX;

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
    pub fn is_written(&self, moment: &Moment<'_>) -> bool {
        self.written >= moment.begin
    }

    /// The time of the last write and its thread.
    pub fn last_write(&self) -> (u32, u16) {
        (self.written, self.writer & !ATOMIC)
    }

    /// Whether a copy is on its way to it.
    pub fn is_in_flight(&self) -> bool {
        self.written == IN_FLIGHT
    }

    /// Begins the write of a copy.
    pub fn take_off(&mut self, thread: u16) {
        (self.written, self.writer) = (IN_FLIGHT, thread);
    }

    /// Ends the write of a copy. Nobody has accessed the cell since its beginning.
    pub fn land(&mut self, time: u32) {
        self.written = time;
    }

    /// Notes a load of a byte that the block wrote before its last barrier. Else does nothing.
    #[inline(always)]
    pub fn read_quickly(&mut self, moment: &Moment<'_>) -> bool {
        if self.written < moment.begin || self.written >= moment.barrier {
            return false;
        }
        self.reader = if self.read < moment.barrier { moment.thread } else { self.readers(moment, false) };
        self.read = moment.now;
        true
    }

    /// Notes a store to a byte that nobody has accessed since the last barrier. Else does nothing.
    #[inline(always)]
    pub fn write_quickly(&mut self, moment: &Moment<'_>) -> bool {
        let quiet = self.written < moment.barrier && self.read < moment.barrier;
        if quiet {
            (self.written, self.writer) = (moment.now, moment.thread);
        }
        quiet
    }

    /// Notes a load. `across`: whether accesses of other blocks count; they are never ordered.
    pub fn read(&mut self, moment: &Moment<'_>, across: bool) -> Option<Clash> {
        let clash = self.writer_clash(moment, across);
        self.reader = self.readers(moment, across);
        self.read = moment.now;
        clash
    }

    /// Checks a load that is not noted.
    pub fn writer_clash(&self, moment: &Moment<'_>, across: bool) -> Option<Clash> {
        let writer = self.writer & !ATOMIC;
        unordered(self.written, writer, moment, across).then_some(Clash { thread: Some(writer), time: self.written, wrote: true })
    }

    /// The readers that are left to remember when one more reads.
    #[inline(always)]
    fn readers(&self, moment: &Moment<'_>, across: bool) -> u16 {
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
    pub fn read_strongly(&self, moment: &Moment<'_>, across: bool) -> Option<Clash> {
        let clash = self.writer & ATOMIC == 0 && unordered(self.written, self.writer, moment, across);
        clash.then_some(Clash { thread: Some(self.writer), time: self.written, wrote: true })
    }

    /// Notes a store, or an atomic load and store.
    pub fn write(&mut self, moment: &Moment<'_>, atomic: bool, across: bool) -> Option<Clash> {
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

    fn reader_clash(&self, moment: &Moment<'_>, across: bool) -> Option<Clash> {
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

/// The last loads of a word by a warp, where barriers order some warps only.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reader {
    time: u32,
    /// The thread, or [`WARP`].
    thread: u16,
}

impl Reader {
    /// Notes a load.
    pub fn note(&mut self, moment: &Moment<'_>) {
        let alone = self.time < moment.begin || self.time < moment.warp || self.thread == moment.thread;
        *self = Reader { time: moment.now, thread: if alone { moment.thread } else { WARP } };
    }

    /// The load of a warp that a write is not ordered after.
    pub fn clash(&self, warp: u16, moment: &Moment<'_>) -> Option<Clash> {
        let is_known = self.thread != WARP;
        // Any other thread of the warp stands for several.
        let thread = if is_known { self.thread } else { warp * 32 + u16::from(moment.thread.is_multiple_of(32)) };
        let clashes = self.time >= moment.begin && unordered(self.time, thread, moment, false);
        clashes.then_some(Clash { thread: is_known.then_some(thread), time: self.time, wrote: false })
    }
}

/// Whether an access of a thread at a time is neither the same thread's nor ordered before the moment.
#[inline(always)]
fn unordered(time: u32, thread: u16, moment: &Moment<'_>, across: bool) -> bool {
    if time < moment.barrier {
        return across && time != 0 && time < moment.begin;
    }
    let own = thread / 32 == moment.thread / 32;
    let ordered = if own { time < moment.warp } else { moment.seen.get(usize::from(thread / 32)).is_some_and(|seen| time < *seen) };
    thread != moment.thread && !ordered
}
