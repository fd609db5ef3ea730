//! Planted mistakes: each is found, with its kind and place.

use crate::support::{Loaded, Parameter, load, load_text};
use gradlet_cuda_emulator::machine::{Fault, FaultKind};

fn fault(cuda: &mut Loaded, kernel: &str, blocks: u32, threads: u32, parameters: &[&dyn Parameter]) -> Fault {
    let fault = cuda.launch(kernel, [blocks, 1, 1], [threads, 1, 1], parameters).expect_err(kernel);
    println!("{fault}");
    assert!(fault.text.contains(&format!("`{kernel}`")), "{fault}");
    fault
}

#[track_caller]
fn expect(kernel: &str, threads: u32, kind: FaultKind, text: &str, parameters: impl Fn(&mut Loaded) -> Vec<Box<dyn Parameter>>) {
    let mut cuda = load("faults.ptx");
    let parameters = parameters(&mut cuda);
    let references: Vec<&dyn Parameter> = parameters.iter().map(|p| &**p).collect();
    let fault = fault(&mut cuda, kernel, 1, threads, &references);
    assert_eq!(fault.kind, kind, "{fault}");
    assert!(fault.text.contains(text), "{fault}");
}

fn out(cuda: &mut Loaded, bytes: usize) -> Box<dyn Parameter> {
    Box::new(cuda.device.allocate(bytes))
}

#[test]
fn addresses() {
    use FaultKind::{IllegalAddress, LocalOutOfBounds, Misaligned, SharedOutOfBounds};
    expect("past_the_end", 32, IllegalAddress, "thread (31, 0, 0)", |cuda| vec![out(cuda, 128)]);
    expect("read_past_the_end", 32, IllegalAddress, "thread (31, 0, 0)", |cuda| vec![Box::new(cuda.upload(&[1i32; 32])), out(cuda, 128)]);
    expect("null_pointer", 2, IllegalAddress, "thread (0, 0, 0)", |cuda| vec![out(cuda, 4)]);
    expect("misaligned", 2, Misaligned, "no multiple of 4", |cuda| vec![out(cuda, 8)]);
    expect("misaligned_vector", 2, Misaligned, "no multiple of 16", |cuda| vec![out(cuda, 64)]);
    expect("shared_past_the_end", 32, SharedOutOfBounds, "has 128 bytes", |cuda| vec![out(cuda, 128), Box::new(1i32)]);
    expect("shared_past_the_end", 32, SharedOutOfBounds, "thread (0, 0, 0)", |cuda| vec![out(cuda, 128), Box::new(-1i32)]);
    expect("local_past_the_end", 1, LocalOutOfBounds, "local memory", |cuda| vec![out(cuda, 4), Box::new(10_000i32)]);
}

#[test]
fn races() {
    use FaultKind::SharedRace;
    for kernel in ["late_missing_barrier", "missing_second_barrier", "same_place", "bytes_of_a_word", "plain_beside_atomic"] {
        expect(kernel, 64, SharedRace, "without a barrier", |cuda| vec![out(cuda, 512)]);
    }
    expect("warp_without_sync", 32, SharedRace, "thread number 31", |cuda| vec![out(cuda, 128)]);
    let mut cuda = load("faults.ptx");
    let out = cuda.device.allocate(128);
    cuda.block("warp_with_sync", 32, &[&out]);
}

#[test]
fn races_on_device_memory() {
    let mut cuda = load("faults.ptx");
    cuda.options.global_races = true;
    let out = cuda.upload(&[0i32; 1001]);
    let kind = |cuda: &mut Loaded, kernel, blocks| fault(cuda, kernel, blocks, 64, &[&out]).kind;
    assert_eq!(kind(&mut cuda, "blocks_race", 2), FaultKind::GlobalRace);
    assert_eq!(kind(&mut cuda, "neighbours_race", 1), FaultKind::GlobalRace);
    assert_eq!(kind(&mut cuda, "in_place_race", 1), FaultKind::GlobalRace);
    cuda.block("blocks_race", 64, &[&out]);
    cuda.launch("ordered", [2, 1, 1], [64, 1, 1], &[&out]).unwrap();
}

#[test]
fn values_that_nobody_wrote() {
    use FaultKind::{UninitialisedGlobal, UninitialisedRegister, UninitialisedShared};
    expect("shared_unwritten", 32, UninitialisedShared, "thread (31, 0, 0)", |cuda| vec![out(cuda, 128)]);
    // The first warp reads what the second one has not written yet.
    expect("missing_barrier", 64, UninitialisedShared, "thread (0, 0, 0)", |cuda| vec![out(cuda, 256)]);
    expect("unset_variable", 1, UninitialisedRegister, "address", |cuda| vec![out(cuda, 128), Box::new(1i32)]);
    expect("unset_value", 1, UninitialisedRegister, "stored value", |cuda| vec![out(cuda, 128)]);
    expect("unset_local", 1, UninitialisedRegister, "stored value", |cuda| vec![out(cuda, 128), Box::new(3i32)]);
    expect("read_past_the_end", 31, UninitialisedGlobal, "thread (0, 0, 0)", |cuda| vec![out(cuda, 128), out(cuda, 128)]);
    let mut cuda = load("faults.ptx");
    let out = cuda.device.allocate(4);
    cuda.block("unset_variable", 1, &[&out, &0i32]);
}

#[test]
fn threads_that_do_not_meet() {
    use FaultKind::{BarrierDivergence, Timeout, Trap, WarpDivergence};
    expect("early_return", 64, BarrierDivergence, "has ended", |cuda| vec![out(cuda, 256), Box::new(32i32)]);
    expect("early_return", 33, BarrierDivergence, "has ended", |cuda| vec![out(cuda, 256), Box::new(31i32)]);
    expect("different_barriers", 64, BarrierDivergence, "another one", |cuda| vec![out(cuda, 256)]);
    expect("absent_lanes", 32, WarpDivergence, "do not come", |cuda| vec![out(cuda, 128)]);
    expect("gives_up", 32, Trap, "thread (7, 0, 0)", |_| vec![Box::new(7i32)]);
    let mut cuda = load("faults.ptx");
    cuda.options.budget = 1000;
    let flag = cuda.upload(&[0i32]);
    assert_eq!(fault(&mut cuda, "for_ever", 1, 32, &[&flag]).kind, Timeout);
}

#[test]
fn limits() {
    let mut cuda = load("faults.ptx");
    let mut refused = |grid, block, parameters: &[&dyn Parameter]| {
        let fault = cuda.launch("gives_up", grid, block, parameters).unwrap_err();
        println!("{fault}");
        assert_eq!(fault.kind, FaultKind::LaunchLimits, "{fault}");
    };
    refused([0, 1, 1], [1; 3], &[&100i32]);
    refused([1, 65_536, 1], [1; 3], &[&100i32]);
    refused([1; 3], [1025, 1, 1], &[&100i32]);
    refused([1; 3], [1, 1, 65], &[&100i32]);
    refused([1; 3], [32, 33, 1], &[&100i32]);
    refused([1; 3], [0, 1, 1], &[&100i32]);
    refused([1; 3], [1; 3], &[]);
    refused([1; 3], [1; 3], &[&100i64]);
}

/// A kernel around some lines of PTX.
fn kernel(body: &str) -> String {
    let head = ".version 7.4\n.target sm_70\n.address_size 64\n.visible .entry k(.param .u64 out)\n{\n";
    format!("{head}.reg .pred %p<4>; .reg .b32 %r<9>; .reg .f32 %f<5>; .reg .b64 %rd<4>;\n{body}\nret;\n}}\n")
}

#[test]
fn what_the_parser_refuses() {
    use gradlet_cuda_emulator::ptx::Module;
    let refused = |text: &str, what: &str| {
        let error = Module::parse(text, (7, 4)).err().unwrap_or_else(|| panic!("accepted: {text}"));
        assert!(error.contains(what), "{error}");
    };
    refused(&kernel("").replace("7.4", "7.5"), "7.5");
    refused(&kernel("frobnicate.u32 %r1, %r2;"), "line 7: the instruction `frobnicate.u32`");
    refused(&kernel("add.rn.u32 %r1, %r2, %r3;"), "`.rn`");
    refused(&kernel("add.u32 %r1, %r2;"), "operands");
    refused(&kernel("add.u32 %r1, %rd2, %r3;"), "%rd2");
    refused(&kernel("add.u32 %r1, %r2, %r9;"), "`%r9` is not declared");
    refused(&kernel("bra away;"), "`away`");
    refused(&kernel("call (%r1), f, (%r2);"), "`f`");
    refused(&kernel("ld.shared.u32 %r1, [out];"), "out");
    refused(&kernel("barrier.red.popc.u32 %r1, 0, 64, %p1;"), "part of the block");
    refused(&kernel("cp.async.wait_all;"), "sm_80");
    refused(&kernel("wgmma.fence.sync.aligned;").replace("sm_70", "sm_90"), "sm_90a");
    refused("", "version");
    refused(".version 7.4 .target sm_70 .address_size 32", "64 bits");
    refused(".version 7.4 .target sm_70 .entry k( {", "line 1");
    for length in 0..kernel("add.u32 %r1, %r2, 3;").len() - 2 {
        let text = kernel("add.u32 %r1, %r2, 3;");
        let part = text.split_at(length).0;
        // A part may be a file of its own, but nothing panics.
        let _ = Module::parse(part, (7, 4));
    }
}

#[test]
fn rare_instructions() {
    let run = |body: &str| {
        let mut cuda = load_text(&kernel(&format!("ld.param.u64 %rd1, [out];\n{body}\nst.global.u32 [%rd1], %r1;")));
        let out = cuda.device.allocate(4);
        cuda.block("k", 1, &[&out]);
        cuda.download::<u32>(out)[0]
    };
    assert_eq!(run("mov.u32 %r2, 0xabcd1234; bfe.u32 %r1, %r2, 8, 12;"), 0xd12);
    assert_eq!(run("mov.u32 %r2, 0xabcd1234; bfe.s32 %r1, %r2, 24, 8;"), 0xffff_ffab);
    assert_eq!(run("mov.u32 %r2, 0xff; mov.u32 %r3, 0; bfi.b32 %r1, %r2, %r3, 28, 8;"), 0xf000_0000);
    assert_eq!(run("mov.u32 %r2, 5; mov.u32 %r3, 7; setp.lt.and.u32 %p1|%p2, %r2, %r3, %p1; mov.u32 %r1, 1;"), 1);
    assert_eq!(run("setp.eq.u32 %p1, 1, 1; setp.lt.and.u32 %p1|%p2, 5, 7, %p1; selp.u32 %r1, 10, 20, %p1; @%p2 mov.u32 %r1, 3;"), 10);
    assert_eq!(run("setp.eq.u32 %p1, 1, 1; @%p1 setp.lt.or.u32 %p2|%p1, 9, 7, !%p1; selp.u32 %r1, 10, 20, %p1;"), 10);
    assert_eq!(run("mov.u32 %r2, -5; set.lt.u32.s32 %r1, %r2, 0;"), u32::MAX);
    assert_eq!(run("mov.u32 %r2, -5; slct.u32.s32 %r1, 1, 2, %r2;"), 2);
    assert_eq!(run("mov.f32 %f1, 0f7FC00000; testp.notanumber.f32 %p1, %f1; selp.u32 %r1, 1, 0, %p1;"), 1);
    assert_eq!(run("mov.f32 %f1, 0f00000001; add.ftz.f32 %f2, %f1, %f1; mov.b32 %r1, %f2;"), 0);
    assert_eq!(run("mov.f32 %f1, 0f00000001; add.f32 %f2, %f1, %f1; mov.b32 %r1, %f2;"), 2);
    assert_eq!(run("mov.f32 %f1, 0f40400000; mul.sat.f32 %f2, %f1, %f1; mov.b32 %r1, %f2;"), 1f32.to_bits());
    assert_eq!(run("mov.f32 %f1, 0f7F800000; sub.f32 %f2, %f1, %f1; mov.b32 %r1, %f2;"), 0x7fff_ffff);
    assert_eq!(run("lop3.b32 %r1, 12, 10, 9, 0x96;"), 12 ^ 10 ^ 9);
    assert_eq!(run("prmt.b32.rc16 %r1, 0x12345678, 0, 1;"), 0x1234_1234);
    assert_eq!(
        run("mov.u32 %r2, 2;\nt: .branchtargets a, b, c;\nbrx.idx %r2, t;\na: mov.u32 %r1, 1; bra d;\nb: mov.u32 %r1, 2; bra d;\n\
             c: mov.u32 %r1, 3;\nd:"),
        3
    );
    assert_eq!(run("bfind.u32 %r1, 0x1000;"), 12);
    assert_eq!(
        run("{ .reg .b16 %h<3>; mov.u32 %r2, 0x40003c00; mov.b32 {%h1, %h2}, %r2; add.rn.f16 %h1, %h1, %h2; cvt.u32.u16 %r1, %h1; }"),
        0x4200
    );
    assert_eq!(run("mov.u32 %r1, %tid.x; mov.u32 %r2, WARP_SZ; add.u32 %r1, %r1, %r2;"), 32);
    assert_eq!(run("mul24.lo.u32 %r1, 0x1000003, 5; mad24.lo.u32 %r1, %r1, 2, 1;"), 31);
}
