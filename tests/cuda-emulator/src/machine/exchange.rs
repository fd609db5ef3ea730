//! Operations over the lanes of a warp: shuffles, votes, matches.

use super::{
    code::{Exchange, Shuffle, Vote, WarpOperation},
    engine::{Engine, Outcome, first, merge, stop},
    memory::{FaultKind, Memory},
    registers::{LANES, lanes},
    warp::Warp,
};

impl<M: Memory> Engine<'_, M> {
    /// The lanes that an operation names. Each that executes it names the same ones, and itself.
    pub fn members(warp: &Warp, exchange: &Exchange, active: u32) -> Outcome<u32> {
        let register = exchange.members as usize;
        let undefined = active & !warp.registers.narrow.defined[register];
        if undefined != 0 {
            return stop(first(undefined), FaultKind::UninitialisedRegister, "the mask depends on a value that was never written");
        }
        let masks = &warp.registers.narrow.values[register];
        let members = masks[first(active)];
        for lane in lanes(active) {
            if masks[lane] != members || members >> lane & 1 == 0 {
                let text = format!("it names the lanes {:#010x}, another one {members:#010x}; both must be in both", masks[lane]);
                return stop(lane, FaultKind::WarpDivergence, text);
            }
        }
        Ok(members)
    }

    /// Computes over the lanes of a mask.
    pub fn exchange(&mut self, warp: &mut Warp, operation: WarpOperation, exchange: &Exchange, active: u32) -> Outcome<()> {
        match operation {
            WarpOperation::Synchronize => {}
            WarpOperation::Shuffle(mode) => shuffle(warp, mode, exchange, active),
            WarpOperation::Vote(vote) => return self::vote(warp, vote, exchange, active),
            WarpOperation::Elect => {
                merge(warp, exchange.d, [first(active) as u32; LANES], active);
                if let Some(p) = exchange.p {
                    warp.registers.set_predicate(p, active & active.wrapping_neg(), active, active);
                }
            }
            WarpOperation::Reduce(f) => {
                let words = values(warp, exchange, false, active)?;
                let word = lanes(active).map(|lane| words[lane] as u32).reduce(f).unwrap_or_default();
                merge(warp, exchange.d, [word; LANES], active);
            }
            WarpOperation::MatchAny(wide) => {
                let values = values(warp, exchange, wide, active)?;
                let same = std::array::from_fn(|lane| equal(&values, lane, active));
                merge(warp, exchange.d, same, active);
            }
            WarpOperation::MatchAll(wide) => {
                let values = values(warp, exchange, wide, active)?;
                let all = equal(&values, first(active), active) == active;
                merge(warp, exchange.d, [if all { active } else { 0 }; LANES], active);
                if let Some(p) = exchange.p {
                    warp.registers.set_predicate(p, if all { active } else { 0 }, active, active);
                }
            }
        }
        Ok(())
    }
}

/// Each lane reads another lane's word. What a lane reads that does not take part is undefined.
fn shuffle(warp: &mut Warp, mode: Shuffle, exchange: &Exchange, active: u32) {
    let narrow = &warp.registers.narrow;
    let source = narrow.values[exchange.a as usize];
    let (steps, clamps) = (narrow.values[exchange.b as usize], narrow.values[exchange.c as usize]);
    let mut defined = narrow.defined[exchange.b as usize] & narrow.defined[exchange.c as usize];
    let known = narrow.defined[exchange.a as usize] & active;
    let mut out = narrow.values[exchange.d as usize];
    let mut inside = 0;
    for lane in lanes(active) {
        let (step, clamp, segments) = ((steps[lane] & 31) as i32, clamps[lane] & 31, clamps[lane] >> 8 & 31);
        let lane_bits = lane as u32;
        let limit = ((lane_bits & segments) | (clamp & !segments)) as i32;
        let at = lane as i32;
        let (from, fits) = match mode {
            Shuffle::Up => (at - step, at - step >= limit),
            Shuffle::Down => (at + step, at + step <= limit),
            Shuffle::Butterfly => (at ^ step, at ^ step <= limit),
            Shuffle::Index => {
                let from = (lane_bits & segments) as i32 | (step & !(segments as i32));
                (from, from <= limit)
            }
        };
        let from = if fits { from as usize & 31 } else { lane };
        out[lane] = source[from];
        inside |= u32::from(fits) << lane;
        if known >> from & 1 == 0 {
            defined &= !(1 << lane);
        }
    }
    warp.registers.narrow.set(exchange.d, out, active, defined);
    if let Some(p) = exchange.p {
        warp.registers.set_predicate(p, inside, active, active);
    }
}

fn vote(warp: &mut Warp, vote: Vote, exchange: &Exchange, active: u32) -> Outcome<()> {
    let source = exchange.a as usize;
    let undefined = active & !warp.registers.predicates_defined[source];
    if undefined != 0 {
        return stop(first(undefined), FaultKind::UninitialisedRegister, "the vote depends on a value that was never written");
    }
    let value = warp.registers.predicates[source];
    let ayes = active & if exchange.negated { !value } else { value };
    let verdict = match vote {
        Vote::All => ayes == active,
        Vote::Any => ayes != 0,
        Vote::Uniform => ayes == active || ayes == 0,
        Vote::Ballot | Vote::Count => {
            merge(warp, exchange.d, [ayes; LANES], active);
            return Ok(());
        }
    };
    warp.registers.set_predicate(exchange.d, if verdict { active } else { 0 }, active, active);
    Ok(())
}

fn values(warp: &Warp, exchange: &Exchange, wide: bool, active: u32) -> Outcome<[u64; LANES]> {
    let register = exchange.a as usize;
    let (values, defined) = if wide {
        (warp.registers.wide.values[register], warp.registers.wide.defined[register])
    } else {
        (warp.registers.narrow.values[register].map(u64::from), warp.registers.narrow.defined[register])
    };
    match active & !defined {
        0 => Ok(values),
        undefined => stop(first(undefined), FaultKind::UninitialisedRegister, "the operand depends on a value that was never written"),
    }
}

/// The lanes whose value is that of a lane.
fn equal(values: &[u64; LANES], lane: usize, active: u32) -> u32 {
    lanes(active).filter(|other| values[*other] == values[lane]).fold(0, |mask, other| mask | 1 << other)
}
