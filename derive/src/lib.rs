//! Macros `#[derive(Module)]` and `#[autograph]` of gradlet. Use them through `gradlet` or `gradlet_core`, which document them.

use proc_macro::TokenStream;

mod autograph;
mod module;

/// Derive macro `gradlet_core::layers::Module`, for crates that depend on `gradlet-core`.
#[proc_macro_derive(Module, attributes(module))]
pub fn module_in_core(input: TokenStream) -> TokenStream {
    expand(input, "::gradlet_core")
}

/// Derive macro `gradlet::layers::Module`, for crates that depend on `gradlet`.
#[proc_macro_derive(HostModule, attributes(module))]
pub fn module_in_host(input: TokenStream) -> TokenStream {
    expand(input, "::gradlet")
}

/// Attribute macro `gradlet_core::autograph::autograph`, for crates that depend on `gradlet-core`.
#[proc_macro_attribute]
pub fn autograph_in_core(arguments: TokenStream, function: TokenStream) -> TokenStream {
    rewrite(arguments, function, "::gradlet_core")
}

/// Attribute macro `gradlet::autograph::autograph`, for crates that depend on `gradlet`.
#[proc_macro_attribute]
pub fn autograph_in_host(arguments: TokenStream, function: TokenStream) -> TokenStream {
    rewrite(arguments, function, "::gradlet")
}

fn rewrite(arguments: TokenStream, function: TokenStream, root: &str) -> TokenStream {
    autograph::rewrite(arguments.into(), function.into(), root).unwrap_or_else(|error| error.into_compile_error()).into()
}

fn expand(input: TokenStream, root: &str) -> TokenStream {
    syn::parse(input).and_then(|input| module::derive(&input, root)).unwrap_or_else(|error| error.into_compile_error()).into()
}
