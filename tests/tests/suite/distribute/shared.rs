//! Variables without copies in replicas that wait for each other.

use super::two;
use gradlet::distribute::ReduceOp;
use gradlet::{Eager, Function, Result, Scope, Tensor, Variable};

#[test]
fn a_function_that_waits_for_replicas_assigns_only_copies() -> Result<()> {
    let strategy = two()?;
    let scope = strategy.scope();
    let start = Tensor::scalar(&scope.device(), 1.0f32);
    let own = Variable::new(&scope, "own", &start)?;
    let shared = Variable::new(&Eager::new(&strategy.devices()[0]), "shared", &start.to(&strategy.devices()[0])?)?;
    for (variable, works) in [(own, true), (shared, false)] {
        let add = Function::new(move |scope: &dyn Scope, x: Tensor| {
            let sum = gradlet::distribute::all_reduce(scope, ReduceOp::Sum, &x)?;
            scope.assign_add(&variable, &sum)?;
            scope.read(&variable)
        });
        let sums = strategy.run(|replica| add.call(replica, Tensor::scalar(&replica.device(), 2.0f32))?.item::<f32>());
        match works {
            true => assert_eq!(sums?.values(), [5.0, 5.0]),
            false => assert!(sums.err().unwrap().to_string().contains("variable \"shared\" has no copies")),
        }
    }
    Ok(())
}
