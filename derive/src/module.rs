//! Derive macro `Module`, which visits every field under its name.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Data, DeriveInput, Error, Field, Fields, Ident, LitStr, Member, Path, Result, parse_quote};

/// Returns the implementation of `Module` for the type `input`. Its paths begin at `root`, the path of the crate.
pub fn derive(input: &DeriveInput, root: &str) -> Result<TokenStream> {
    let root = root_path(&input.attrs)?.map_or_else(|| syn::parse_str(root), Ok)?;
    let arms: Vec<TokenStream> = match &input.data {
        Data::Struct(data) => vec![arm(quote!(Self), &data.fields)?],
        Data::Enum(data) if data.variants.is_empty() => vec![quote!(_ => {})],
        Data::Enum(data) => data.variants.iter().map(|variant| arm_of(&variant.ident, &variant.fields)).collect::<Result<_>>()?,
        Data::Union(data) => {
            return Err(Error::new(data.union_token.span, "a union cannot be a Module: it does not record which of its fields is valid"));
        }
    };
    let mut generics = input.generics.clone();
    let types: Vec<Ident> = generics.type_params().map(|parameter| parameter.ident.clone()).collect();
    generics
        .make_where_clause()
        .predicates
        .extend(types.iter().map(|ty| -> syn::WherePredicate { parse_quote!(#ty: #root::layers::Module) }));
    let (impl_generics, type_generics, where_clause) = generics.split_for_impl();
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #impl_generics #root::layers::Module for #name #type_generics #where_clause {
            fn visit(&self, visitor: &mut dyn #root::layers::Visitor) {
                let _ = &visitor;
                match self { #(#arms)* }
            }
        }
    })
}

/// Returns the path in `#[module(crate = path)]` on the type, which is the path of gradlet if the crate is renamed. Returns `None`
/// without this attribute.
fn root_path(attributes: &[Attribute]) -> Result<Option<Path>> {
    let mut root = None;
    for attribute in attributes.iter().filter(|attribute| attribute.path().is_ident("module")) {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("crate") {
                return Err(meta.error("a type allows only `crate = path`; `skip`, `name` and `tracked` belong on its fields"));
            }
            root = Some(meta.value()?.parse()?);
            Ok(())
        })?;
    }
    Ok(root)
}

fn arm_of(variant: &Ident, fields: &Fields) -> Result<TokenStream> {
    arm(quote!(Self::#variant), fields)
}

/// Returns the arm of a `match` that visits these fields.
fn arm(variant: TokenStream, fields: &Fields) -> Result<TokenStream> {
    // A single unnamed field is the value that the type wraps, so it has no name of its own.
    let wraps = matches!(fields, Fields::Unnamed(fields) if fields.unnamed.len() == 1);
    let mut patterns = Vec::new();
    let mut visits = Vec::new();
    for (field, member) in fields.iter().zip(fields.members()) {
        let options = Options::of(field)?;
        if options.skip {
            continue;
        }
        let binding = format_ident!("field_{}", patterns.len());
        let name = options.name.unwrap_or_else(|| if wraps { String::new() } else { name(&member) });
        patterns.push(quote!(#member: #binding));
        let name = match options.tracked {
            Some(tracked) => quote!(if visitor.tracks() { #tracked } else { #name }),
            None => quote!(#name),
        };
        visits.push(quote!(visitor.module(#name, #binding);));
    }
    Ok(quote!(#variant { #(#patterns,)* .. } => { #(#visits)* }))
}

fn name(member: &Member) -> String {
    match member {
        Member::Named(name) => name.to_string().trim_start_matches("r#").to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    }
}

/// Options from `#[module(…)]` on a field.
#[derive(Default)]
struct Options {
    skip: bool,
    name: Option<String>,
    tracked: Option<String>,
}

impl Options {
    fn of(field: &Field) -> Result<Options> {
        let mut options = Options::default();
        for attribute in field.attrs.iter().filter(|attribute| attribute.path().is_ident("module")) {
            attribute.parse_nested_meta(|meta| {
                if meta.path.is_ident("skip") {
                    options.skip = true;
                } else if meta.path.is_ident("name") {
                    options.name = Some(meta.value()?.parse::<LitStr>()?.value());
                } else if meta.path.is_ident("tracked") {
                    options.tracked = Some(meta.value()?.parse::<LitStr>()?.value());
                } else {
                    return Err(meta.error("a field allows only `skip`, `name = \"…\"` and `tracked = \"…\"`"));
                }
                Ok(())
            })?;
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(input: &str) -> String {
        derive(&syn::parse_str(input).unwrap(), "::gradlet").unwrap_err().to_string()
    }

    #[test]
    fn what_it_does_not_know_is_an_error() {
        assert_eq!(error("union U { a: u32, b: f32 }"), "a union cannot be a Module: it does not record which of its fields is valid");
        assert_eq!(error("struct S { #[module(skipp)] a: u32 }"), "a field allows only `skip`, `name = \"…\"` and `tracked = \"…\"`");
        assert_eq!(error("struct S { #[module(name = 3)] a: u32 }"), "expected string literal");
        let text = error("#[module(skip)] struct S { a: u32 }");
        assert_eq!(text, "a type allows only `crate = path`; `skip`, `name` and `tracked` belong on its fields");
    }

    #[test]
    fn the_crate_can_have_another_name() {
        let input = syn::parse_str("#[module(crate = other::gradlet)] struct S { r#type: Dense, #[module(skip)] b: u32 }").unwrap();
        let code = derive(&input, "::gradlet").unwrap().to_string();
        let visit = "Self { r#type : field_0 , .. } => { visitor . module (\"type\" , field_0) ; }";
        assert!(code.contains(visit) && !code.contains(":: gradlet :: layers :: Module for S < "), "{code}");
    }
}
