//! Offsets of storage areas: the lowest that fit.

use alloc::vec::Vec;

/// Steps in a span of time.
const SPAN: usize = 64;
/// Greatest number of spans of a short-lived area.
const FEW: usize = 8;

/// The areas that have an offset. A short-lived area is in the list of each span that it lives in, so a search sees only the areas of about
/// its own time. Each list is in the order of the offsets.
pub(crate) struct Offsets {
    spans: Vec<Vec<Area>>,
    /// The other areas.
    long: Vec<Area>,
}

#[derive(Clone, Copy)]
struct Area {
    start: u128,
    end: u128,
    first: usize,
    last: usize,
}

impl Offsets {
    /// Creates offsets for areas that live at times below `times`.
    pub(crate) fn new(times: usize) -> Offsets {
        Offsets { spans: alloc::vec![Vec::new(); times.div_ceil(SPAN)], long: Vec::new() }
    }

    /// Returns the lowest offset at which an area of `size` bytes, which lives from `first` to `last`, overlaps no area that is live at
    /// the same time. The area keeps it.
    pub(crate) fn fit(&mut self, size: u128, first: usize, last: usize) -> u128 {
        let own = first / SPAN..last / SPAN + 1;
        let live = |area: &&Area| area.first <= last && first <= area.last;
        let mut short: Vec<Area> = self.spans[own.clone()].iter().flatten().filter(live).copied().collect();
        short.sort_by_key(|area| area.start);
        let (mut short, mut long) = (short.iter().peekable(), self.long.iter().filter(live).peekable());
        let mut next = || match (short.peek(), long.peek()) {
            (Some(one), Some(other)) if one.start < other.start => short.next(),
            (_, None) => short.next(),
            _ => long.next(),
        };
        let mut start = 0;
        while let Some(area) = next()
            && start + size > area.start
        {
            start = start.max(area.end);
        }
        let area = Area { start, end: start + size, first, last };
        let lists = if own.len() > FEW { core::slice::from_mut(&mut self.long) } else { &mut self.spans[own] };
        for list in lists {
            let at = list.partition_point(|other| other.start <= start);
            list.insert(at, area);
        }
        start
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::random::Stream;

    /// Returns the offsets that `Offsets` gives, by comparing each area with all others.
    fn naive(areas: &[(u128, usize, usize)]) -> Vec<u128> {
        let mut placed: Vec<(u128, u128, usize, usize)> = Vec::new();
        for &(size, first, last) in areas {
            let mut live: Vec<_> = placed.iter().filter(|other| other.2 <= last && first <= other.3).collect();
            live.sort();
            let mut start = 0;
            for &&(other, end, ..) in &live {
                if start + size <= other {
                    break;
                }
                start = start.max(end);
            }
            placed.push((start, start + size, first, last));
        }
        placed.iter().map(|area| area.0).collect()
    }

    #[test]
    fn an_area_has_the_lowest_offset_that_is_free() {
        for seed in 0..40 {
            let random = Stream { key: seed, stream: 0 };
            let times = 2 + random.block(0)[0] as usize % 3000;
            let area = |index| {
                let [size, first, length, kind] = random.block(index).map(|number| number as usize);
                // Half of the areas are short, as in a long model that is not trained.
                let (first, length) = (first % times, length % if kind % 2 == 0 { 5 } else { times });
                (8 * (size % 20) as u128, first, (first + length).min(times - 1))
            };
            let areas: Vec<(u128, usize, usize)> = (1..300).map(area).collect();
            let mut offsets = Offsets::new(times);
            let got: Vec<u128> = areas.iter().map(|&(size, first, last)| offsets.fit(size, first, last)).collect();
            assert_eq!(got, naive(&areas), "seed {seed}");
        }
    }
}
