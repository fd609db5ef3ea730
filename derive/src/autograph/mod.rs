//! Attribute macro `#[autograph]`: control flow with tensors as conditions.

mod analysis;
mod branches;
mod exits;
mod loops;
mod lower;
mod operators;

use lower::Lower;
use proc_macro2::TokenStream;
use quote::quote;
use syn::spanned::Spanned;
use syn::{Error, FnArg, GenericArgument, ItemFn, PathArguments, Result, ReturnType, Type};

/// Rewrites the control flow of the function `item` as calls of the crate at `root`. Also returns the rewritten source as text.
pub fn rewrite(arguments: TokenStream, item: TokenStream, root: &str) -> Result<TokenStream> {
    if !arguments.is_empty() {
        return Err(Error::new(arguments.span(), "`autograph` takes no arguments"));
    }
    let item: ItemFn = syn::parse2(item)?;
    let root: syn::Path = syn::parse_str(root)?;
    let value = check(&item)?;
    let mut lower = Lower::new(value);
    for input in &item.sig.inputs {
        match input {
            FnArg::Typed(argument) => lower.declare(analysis::names(&argument.pat), false),
            FnArg::Receiver(_) => lower.declare(["self".to_string()], false),
        }
    }
    let body = lower.function(&item.block.stmts);
    if let Some(error) = lower.errors.into_iter().reduce(|mut all, error| {
        all.combine(error);
        all
    }) {
        return Err(error);
    }
    let ItemFn { attrs, vis, sig, .. } = &item;
    let text = text(&quote!(#sig { #body }));
    let code = (!sig.inputs.iter().any(|input| matches!(input, FnArg::Receiver(_)))).then(|| {
        let name = &sig.ident;
        quote! {
            #[doc(hidden)]
            #[allow(non_camel_case_types, dead_code)]
            #vis enum #name {}
            #[allow(dead_code)]
            impl #name {
                #[doc(hidden)]
                #vis const CODE: &'static str = #text;
            }
        }
    });
    Ok(quote! {
        #(#attrs)*
        #[allow(unreachable_code, unused_mut, unused_labels, unused_assignments, unused_variables)]
        #[allow(unused_parens, unused_braces, clippy::all)]
        #vis #sig {
            use #root::autograph::code as ag;
            #[allow(unused_imports)]
            use ag::traits::*;
            #body
        }
        #code
    })
}

/// Returns the type inside the function's `Result`. Fails for functions that cannot be rewritten.
fn check(item: &ItemFn) -> Result<TokenStream> {
    if let Some(token) = &item.sig.asyncness {
        return Err(Error::new(token.span(), "an autograph function cannot be async: a trace does not wait"));
    }
    if let Some(token) = &item.sig.constness {
        return Err(Error::new(token.span(), "an autograph function cannot be const: tensors are computed when it runs"));
    }
    let needs = "an autograph function returns gradlet_core::Result<…>, because tensor operations can fail";
    match &item.sig.output {
        ReturnType::Default => Err(Error::new(item.sig.ident.span(), needs)),
        ReturnType::Type(_, ty) => result_value(ty).ok_or_else(|| Error::new(ty.span(), needs)),
    }
}

/// Returns the `T` of `Result<T>`, or `None` if `ty` is not a `Result`.
fn result_value(ty: &Type) -> Option<TokenStream> {
    let Type::Path(path) = ty else { return None };
    let last = path.path.segments.last().filter(|last| last.ident.to_string().ends_with("Result"))?;
    let PathArguments::AngleBracketed(arguments) = &last.arguments else { return Some(quote!(_)) };
    match arguments.args.first() {
        Some(GenericArgument::Type(Type::ImplTrait(_))) | None => Some(quote!(_)),
        Some(GenericArgument::Type(ty)) => Some(quote!(#ty)),
        Some(_) => Some(quote!(_)),
    }
}

/// Formats `function` as source text.
fn text(function: &TokenStream) -> String {
    match syn::parse2::<syn::File>(function.clone()) {
        Ok(file) => prettyplease::unparse(&file),
        Err(_) => function.to_string(),
    }
}
