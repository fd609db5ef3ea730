//! `if` expressions: plain Rust, with a value, or with early exits.

use super::analysis::{self, Place, assigned, binds, diverging, exits, is_literal};
use super::exits::{Ending, with_outs};
use super::lower::{Carrier, Leaves, Lower, bound, local};
use proc_macro2::{Ident, TokenStream};
use quote::{quote, quote_spanned};
use std::collections::{HashMap, HashSet};
use syn::spanned::Spanned;
use syn::{Expr, ExprIf, Stmt};

impl Lower {
    /// Rewrites an `if` in expression position. The result is always `Some`.
    pub fn branch(&mut self, branch: &ExprIf) -> Option<TokenStream> {
        if binds(&branch.cond) {
            let (cond, then) =
                (self.expr(&branch.cond), self.scoped(bound(&branch.cond), |this| this.plain_block(&branch.then_branch.stmts)));
            let other = branch.else_branch.as_ref().map(|(_, other)| {
                let other = self.expr(other);
                quote!(else { #other })
            });
            return Some(quote!(if #cond { #then } #other));
        }
        let all = exits(&Expr::If(branch.clone()));
        if all.any() || all.others {
            // An exit inside an expression, or out of a block from which a tensor cannot decide exits.
            let span = branch.cond.span();
            let (cond, then) = (self.expr(&branch.cond), self.plain_block(&branch.then_branch.stmts));
            let other = branch.else_branch.as_ref().map(|(_, other)| {
                let other = self.expr(other);
                quote!(else { #other })
            });
            return Some(quote_spanned!(span=> if ag::plain(#cond) { #then } #other));
        }
        Some(self.value_branch(branch, &Ending::Branch { all_literal: false, outs: Vec::new() }))
    }

    /// Rewrites an `if` without early exits.
    pub(super) fn value_branch(&mut self, branch: &ExprIf, ending: &Ending) -> TokenStream {
        let region = Region::new(self, branch);
        let Region { name, cond, slots, outs, .. } = &region;
        let value = local("value");
        let (then, other) = self.arms(branch, &region, |this, stmts, all_literal| {
            this.scoped(HashSet::new(), |this| {
                let last = stmts.len().saturating_sub(1);
                let code = stmts.iter().enumerate().map(|(index, stmt)| match stmt {
                    Stmt::Expr(expr, None) if index == last && matches!(ending, Ending::Result) => this.unwrapped_tail(expr),
                    Stmt::Expr(expr, None) if index == last && !matches!(expr, Expr::Assign(_)) => this.arm_value(expr, all_literal),
                    stmt => this.stmt(stmt),
                });
                code.collect()
            })
        });
        self.close(&region);
        let given = with_outs(quote!(#value), outs);
        let end = quote_spanned!(branch.if_token.span=> #name.end(#given, #slots));
        let lets = outs.iter().map(|out| quote!(let mut #out;));
        let run = quote! {
            loop {
                #(#lets)*
                let #value = if #name.chosen() { #then } else { #other };
                match #end? {
                    ag::Ran::Done(#value) => break #value,
                    ag::Ran::Again(again) => { again.go(); }
                }
            }
        };
        let begin = quote!(let mut #name = ag::branch(#cond)?; #name.begin(#slots)?;);
        if outs.is_empty() {
            return quote!({ #begin #run });
        }
        let news: Vec<Ident> = outs.iter().map(|out| local(&format!("new_{out}"))).collect();
        outs.iter().for_each(|out| self.fill(&out.to_string()));
        quote!({ #begin let (#value, #(#news),*) = #run; #(#outs = #news;)* #value })
    }

    pub(super) fn unwrapped_tail(&mut self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::If(branch) if !binds(&branch.cond) && branch.else_branch.is_some() && !exits(expr).any() => {
                self.value_branch(branch, &Ending::Result)
            }
            _ => self.unwrapped(expr),
        }
    }

    /// Rewrites an `if` with early exits as an expression of type `Exit`.
    pub(super) fn exit_branch(&mut self, branch: &ExprIf, ending: &Ending) -> (TokenStream, Vec<Ident>) {
        let region = Region::new(self, branch);
        let Region { name, cond, slots, outs, .. } = &region;
        let (label, exit, returned) = (self.label("branch"), local("exit"), self.value.clone());
        self.places.push(Leaves::Block(label.clone(), Some(name.clone())));
        let (then, other) = self.arms(branch, &region, |this, stmts, all_literal| {
            let ending = match ending {
                Ending::Result => Ending::Result,
                Ending::Function => Ending::Function,
                Ending::Branch { .. } => Ending::Branch { all_literal, outs: outs.clone() },
            };
            this.exit_block(stmts, &ending)
        });
        self.places.pop();
        self.close(&region);
        let unit = if matches!(ending, Ending::Function) || diverging(&Expr::If(branch.clone())) { quote!(()) } else { quote!(_) };
        let lets = outs.iter().map(|out| quote!(let mut #out;));
        let leave = quote_spanned!(branch.if_token.span=> #name.leave(#exit, #slots));
        let code = quote! {{
            let mut #name = ag::branch(#cond)?;
            #name.begin(#slots)?;
            loop {
                #(#lets)*
                let #exit: ag::Exit<#unit, #returned> = #label: { if #name.chosen() { #then } else { #other } };
                match #leave? {
                    ag::Ran::Done(#exit) => break #exit,
                    ag::Ran::Again(again) => { again.go(); }
                }
            }
        }};
        (code, region.outs)
    }

    /// Rewrites both branches with `lower`, which receives the statements of a branch, and true if both branches end in a literal.
    /// An `else if` is treated as a block with an `if` in it.
    pub(super) fn arms(
        &mut self,
        branch: &ExprIf,
        region: &Region,
        mut lower: impl FnMut(&mut Lower, &[Stmt], bool) -> TokenStream,
    ) -> (TokenStream, TokenStream) {
        let other: Vec<Stmt> = match &branch.else_branch {
            Some((_, other)) => match &**other {
                Expr::Block(block) => block.block.stmts.clone(),
                other => vec![Stmt::Expr(other.clone(), None)],
            },
            None => Vec::new(),
        };
        let literal = |stmts: &[Stmt]| matches!(stmts.last(), Some(Stmt::Expr(expr, None)) if is_literal(expr));
        let all_literal = literal(&branch.then_branch.stmts) && literal(&other);
        for out in &region.outs {
            self.declare([out.to_string()], true);
        }
        let then = lower(self, &branch.then_branch.stmts, all_literal);
        for out in &region.outs {
            self.declare([out.to_string()], true);
        }
        (then, lower(self, &other, all_literal))
    }

    pub(super) fn close(&mut self, _: &Region) {
        self.branches.pop();
        self.scopes.pop();
        self.depth -= 1;
    }
}

/// Branch that is being rewritten.
pub(super) struct Region {
    name: Ident,
    cond: TokenStream,
    slots: TokenStream,
    /// Variables that get their first values in the branch.
    outs: Vec<Ident>,
}

impl Region {
    fn new(lower: &mut Lower, branch: &ExprIf) -> Region {
        let cond = lower.expr(&branch.cond);
        let span = branch.cond.span();
        let cond = quote_spanned!(span=> #cond);
        let whole = Stmt::Expr(Expr::If(branch.clone()), None);
        let (places, outs) = lower.carried(assigned([&whole]));
        for out in &outs {
            check(lower, branch, out);
        }
        lower.depth += 1;
        let name = lower.numbered("branch");
        let slots = lower.slots(&places, Carrier::Region(&name));
        let outs = outs.iter().map(|out| Ident::new(&out.root, out.span)).collect();
        lower.branches.push((name.clone(), lower.scopes.len()));
        lower.scopes.push(HashMap::new());
        Region { name, cond, slots, outs }
    }
}

/// Checks that a variable that gets its first value in one branch also gets it in the other.
fn check(lower: &mut Lower, branch: &ExprIf, out: &Place) {
    let name = &out.root;
    let then = analysis::surely_assigns(&branch.then_branch.stmts, name);
    let other = branch.else_branch.as_ref().is_some_and(|(_, other)| diverging(other) || analysis::assigns(other, name));
    if !then {
        lower.error(out.span, format!("'{name}' must also be initialized in the main branch"));
    } else if !other {
        lower.error(out.span, format!("'{name}' must also be initialized in the else branch"));
    }
}
