//! `#[derive(Module)]` and `#[autograph]` for gradlet. Use them from `gradlet` or `gradlet_core`, where they are documented.

use proc_macro::TokenStream;

mod autograph;
mod module;

/// `gradlet_core::layers::Module`, for who depends on `gradlet-core`.
#[proc_macro_derive(Module, attributes(module))]
pub fn module_in_core(input: TokenStream) -> TokenStream {
    expand(input, "::gradlet_core")
}

/// `gradlet::layers::Module`, for who depends on `gradlet`.
#[proc_macro_derive(HostModule, attributes(module))]
pub fn module_in_host(input: TokenStream) -> TokenStream {
    expand(input, "::gradlet")
}

/// `gradlet_core::autograph::autograph`, for who depends on `gradlet-core`.
#[proc_macro_attribute]
pub fn autograph_in_core(arguments: TokenStream, function: TokenStream) -> TokenStream {
    rewrite(arguments, function, "::gradlet_core")
}

/// `gradlet::autograph::autograph`, for who depends on `gradlet`.
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
