//! Elements between registers and bytes.

use super::{
    code::{Place, Transfer},
    registers::{LANES, fill, lanes},
    transfer::{Pattern, Reach},
    warp::Warp,
};

/// Loads elements from bytes that begin at an address.
#[inline(always)]
pub fn gather(warp: &mut Warp, transfer: &Transfer, bytes: &[u8], start: u64, reach: Reach<'_>, defined: &[u32; 4]) {
    for (element, place) in transfer.places.iter().enumerate().take(transfer.count.into()) {
        let first = element * usize::from(transfer.width);
        macro_rules! into {
            ($bank:ident, $register:expr, $word:ty) => {{
                let bank = &mut warp.registers.$bank;
                let mut out = bank.values[*$register as usize];
                macro_rules! read {
                    ($type:ty) => {
                        take(&mut out, bytes, start, reach, first, |bytes| <$type>::from_le_bytes(bytes) as $word)
                    };
                }
                match (transfer.width, transfer.signed) {
                    (1, false) => read!(u8),
                    (1, true) => read!(i8),
                    (2, false) => read!(u16),
                    (2, true) => read!(i16),
                    (4, false) => read!(u32),
                    (4, true) => read!(i32),
                    _ => read!(u64),
                }
                bank.set(*$register, out, reach.active, defined[element]);
            }};
        }
        match place {
            Place::Narrow(register) => into!(narrow, register, u32),
            Place::Wide(register) => into!(wide, register, u64),
            Place::Nowhere => {}
        }
    }
}

/// Reads a word of `N` bytes for each lane, `first` bytes behind its address.
#[inline(always)]
fn take<T: Copy, const N: usize>(
    out: &mut [T; LANES],
    bytes: &[u8],
    start: u64,
    reach: Reach<'_>,
    first: usize,
    read: impl Fn([u8; N]) -> T,
) {
    match reach.pattern {
        Pattern::Same => out.fill(read(word(bytes, reach.offset(0, start) + first))),
        Pattern::Row => {
            let row = &bytes[reach.offset(0, start)..][..LANES * reach.length];
            for (out, lane) in out.iter_mut().zip(row.chunks_exact(reach.length)) {
                *out = read(word(lane, first));
            }
        }
        Pattern::Any => fill(out, reach.active, |lane| read(word(bytes, reach.offset(lane, start) + first))),
    }
}

/// The bytes from a place, which the caller has checked.
#[inline(always)]
fn word<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut word = [0; N];
    word.copy_from_slice(&bytes[at..at + N]);
    word
}

/// Stores elements to bytes that begin at an address.
#[inline(always)]
pub fn scatter(warp: &Warp, transfer: &Transfer, bytes: &mut [u8], start: u64, reach: Reach<'_>) {
    for (element, place) in transfer.places.iter().enumerate().take(transfer.count.into()) {
        let first = element * usize::from(transfer.width);
        macro_rules! write {
            ($values:expr) => {{
                let values = $values;
                match transfer.width {
                    1 => put(bytes, start, reach, first, |lane| [values[lane] as u8]),
                    2 => put(bytes, start, reach, first, |lane| (values[lane] as u16).to_le_bytes()),
                    4 => put(bytes, start, reach, first, |lane| (values[lane] as u32).to_le_bytes()),
                    _ => put(bytes, start, reach, first, |lane| (values[lane] as u64).to_le_bytes()),
                }
            }};
        }
        match place {
            Place::Narrow(register) => write!(&warp.registers.narrow.values[*register as usize]),
            Place::Wide(register) => write!(&warp.registers.wide.values[*register as usize]),
            Place::Nowhere => {}
        }
    }
}

/// Writes a word for each lane, `first` bytes behind its address.
#[inline(always)]
fn put<const N: usize>(bytes: &mut [u8], start: u64, reach: Reach<'_>, first: usize, word: impl Fn(usize) -> [u8; N]) {
    if reach.pattern == Pattern::Row {
        let row = &mut bytes[reach.offset(0, start)..][..LANES * reach.length];
        for (lane, bytes) in row.chunks_exact_mut(reach.length).enumerate() {
            bytes[first..first + N].copy_from_slice(&word(lane));
        }
    } else {
        for lane in lanes(reach.active) {
            bytes[reach.offset(lane, start) + first..][..N].copy_from_slice(&word(lane));
        }
    }
}
