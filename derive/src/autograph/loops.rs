//! `while`, `for` and `loop`.

use super::analysis::{assigned, binds, block_exits, names};
use super::lower::{Carrier, Lower, bound, local};
use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{Attribute, Block, Expr, ExprForLoop, ExprLoop, ExprWhile, Stmt};

/// Loop that is being rewritten.
struct Head {
    name: Ident,
    slots: TokenStream,
    most: TokenStream,
    /// Type of the function's result if the loop contains a `return`, otherwise `()`.
    returned: TokenStream,
    leaves: bool,
}

impl Lower {
    /// Returns the code of the `Option` with the maximum number of iterations, from `#[max_iterations(…)]`.
    fn most(&mut self, attributes: &[Attribute]) -> TokenStream {
        let mut most = quote!(None);
        for attribute in attributes {
            let parsed = attribute.parse_args::<Expr>();
            match parsed {
                Ok(count) if attribute.path().is_ident("max_iterations") => most = quote!(Some(#count)),
                Err(error) if attribute.path().is_ident("max_iterations") => self.errors.push(error),
                _ => (),
            }
        }
        most
    }

    fn head(&mut self, stmt: Expr, attributes: &[Attribute], body: &Block, each: bool) -> Head {
        let exits = block_exits(body);
        let most = self.most(attributes);
        let stmt = Stmt::Expr(stmt, None);
        let (places, _) = self.carried(assigned([&stmt]));
        let name = self.enter_loop();
        let carrier = if each { Carrier::Each(&name) } else { Carrier::Region(&name) };
        let slots = self.slots(&places, carrier);
        let returned = if exits.returns { self.value.clone() } else { quote!(()) };
        Head { name, slots, most, returned, leaves: exits.any() }
    }

    /// Rewrites the body of a loop. If it can be left early, the code also handles its exit.
    fn iteration(&mut self, head: &Head, body: &Block, carriers: bool) -> TokenStream {
        let Head { name, returned, .. } = head;
        if !head.leaves {
            return self.native_body(body);
        }
        let exit = local("exit");
        let (label, body) = self.iteration_block(body, returned);
        let arguments = if carriers { quote!(ag::Returns(&#exit).ops(), #exit) } else { quote!(#exit) };
        quote! {
            let #exit: ag::Exit<(), #returned> = #label: { #body };
            if !#name.leave(#arguments)? {
                break;
            }
        }
    }

    /// Rewrites a `while` in expression position. The result is always `Some`.
    pub fn while_loop(&mut self, looping: &ExprWhile) -> Option<TokenStream> {
        if binds(&looping.cond) {
            let (label, cond) = (&looping.label, self.expr(&looping.cond));
            let body = self.scoped(bound(&looping.cond), |this| this.native_body(&looping.body));
            return Some(quote!(#label while #cond { #body }));
        }
        let (code, name) = self.while_code(looping);
        // A `return` inside such a loop returns from the function at this point.
        let finish = block_exits(&looping.body).returns.then(|| self.settled(quote!(#name.exit())));
        Some(quote!({ #code #finish }))
    }

    /// Rewrites a `while` that contains a `return` as an expression of type `Exit`.
    pub fn while_exit(&mut self, looping: &ExprWhile) -> TokenStream {
        let (code, name) = self.while_code(looping);
        quote!({ #code #name.exit() })
    }

    fn while_code(&mut self, looping: &ExprWhile) -> (TokenStream, Ident) {
        let head = self.head(Expr::While(looping.clone()), &looping.attrs, &looping.body, false);
        let span = looping.cond.span();
        let cond = self.expr(&looping.cond);
        let body = self.iteration(&head, &looping.body, false);
        self.leave_loop();
        let Head { name, slots, most, returned, .. } = head;
        let label = &looping.label;
        let ask = quote_spanned!(span=> #name.holds(#cond)?);
        let code = quote! {
            let mut #name = ag::looping::<_, _, #returned>(#most);
            #label while #name.again(#slots)? {
                if #name.asks() && !#ask {
                    continue;
                }
                #body
            }
        };
        (code, name)
    }

    /// Rewrites a `for` in expression position.
    pub fn for_loop(&mut self, looping: &ExprForLoop) -> TokenStream {
        let (code, name) = self.for_code(looping);
        let finish = block_exits(&looping.body).returns.then(|| self.settled(quote!(#name.exit()?)));
        quote!({ #code #finish })
    }

    /// Rewrites a `for` that contains a `return` as an expression of type `Exit`.
    pub fn for_exit(&mut self, looping: &ExprForLoop) -> TokenStream {
        let (code, name) = self.for_code(looping);
        quote!({ #code #name.exit()? })
    }

    fn for_code(&mut self, looping: &ExprForLoop) -> (TokenStream, Ident) {
        let span = looping.expr.span();
        let over = self.expr(&looping.expr);
        let head = self.head(Expr::ForLoop(looping.clone()), &looping.attrs, &looping.body, true);
        let body = self.scoped(names(&looping.pat), |this| this.iteration(&head, &looping.body, true));
        self.leave_loop();
        let Head { name, slots, most, returned, .. } = head;
        let (label, pat) = (&looping.label, &looping.pat);
        let start = quote_spanned!(span=> ag::each::<_, _, #returned>(#over, #most)?);
        let code = quote! {
            let mut #name = #start;
            #label while let Some(#pat) = #name.next(#slots)? {
                #body
            }
        };
        (code, name)
    }

    /// Rewrites the body of a `loop`, which remains Rust's own.
    pub fn forever(&mut self, looping: &ExprLoop) -> TokenStream {
        let label = &looping.label;
        let body = self.native_body(&looping.body);
        quote!(#label loop { #body })
    }
}
