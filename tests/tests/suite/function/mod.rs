//! Programs with `tf.function`, compared with TensorFlow's logs. Each port must have the same values, prints, traces and errors.
//!
//! `GRADLET_FUNCTION_FIXTURES` names another folder, with other numbers in the same programs.

mod arrays;
mod control;
mod device;
mod graphs;
mod log;
mod printing;
mod python;
mod state;
mod tapes;
mod tracing;

use log::Log;

/// Programs without a meaning in Rust, with the reason.
const LISTED: &[(&str, &str)] = &[
    ("if_undefined_in_one_branch", "a value that only one branch defines does not compile"),
    (
        "for_over_dataset",
        "datasets are iterators of the host, in Rust as in Python: no graph runs over them, a Function is called with what they give",
    ),
];

macro_rules! ports {
    ($($module:ident: $($id:ident)*;)*) => {
        const PORTED: &[&str] = &[$($(stringify!($id),)*)*];
        $($(
            #[test]
            fn $id() {
                $module::$id(&mut Log::of(stringify!($id)));
            }
        )*)*
    };
}

ports! {
    tracing: trace_by_dtype_and_python_value trace_by_shape python_lists_are_nested_inputs reduce_retracing other_python_arguments
        object_arguments variable_arguments two_variable_arguments_aliasing input_signature input_signature_two
        methods_trace_per_instance retracing_warning run_eagerly nested_functions python_range_is_unrolled return_structures;
    state: side_effects_happen_while_tracing python_globals_are_frozen tensor_and_variable_capture assignments_persist
        variable_created_every_call variable_created_once variable_created_on_second_trace leaking_a_symbolic_tensor
        symbolic_tensor_misuse runtime_error_inside shape_error_while_tracing order_of_effects;
    control: if_on_tensor if_dtype_mismatch if_shape_mismatch if_none_in_one_branch early_return while_on_tensor
        for_range_break_continue for_over_tensor_rows loop_variable_changes_shape loop_variable_changes_dtype
        cond_while_case_directly logical_operators tf_print_in_function gradient_through_control_flow assertions;
    arrays: tensor_array_write_read tensor_array_lost_write tensor_array_ops_eager tensor_array_graph_errors
        tensor_array_in_loop_with_gradient tensor_array_gradient_of_gather_scatter growing_in_a_loop;
    tapes: tape_basic_and_errors tape_stop_recording tape_higher_order tape_variable_options tape_jacobian_and_function
        custom_gradient;
    printing: tf_print_format repr_and_str module_variable_collection;
}

#[test]
fn every_program_is_ported_or_listed() {
    let cases = log::read("transcripts.json")["cases"].take();
    for case in cases.as_array().unwrap() {
        let id = case["id"].as_str().unwrap();
        let listed = LISTED.iter().any(|(listed, reason)| *listed == id && reason.len() > 20);
        assert!(PORTED.contains(&id) != listed, "{id} is to be ported or listed");
    }
}
