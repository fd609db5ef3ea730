//! `#[derive(Module)]` for gradlet. Use it from `gradlet::layers` or `gradlet_core::layers`, where it is documented.

use proc_macro::TokenStream;

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

fn expand(input: TokenStream, root: &str) -> TokenStream {
    syn::parse(input).and_then(|input| module::derive(&input, root)).unwrap_or_else(|error| error.into_compile_error()).into()
}
