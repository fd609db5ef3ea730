//! Blocks with early exits: the code after an exit runs only if the block was not left.

use super::analysis::{Place, assigned, binds, block_exits, diverges, diverging, exits, is_err, is_literal, names};
use super::lower::{Carrier, Leaves, Lower, bound, local};
use proc_macro2::{Ident, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use std::collections::HashSet;
use syn::spanned::Spanned;
use syn::{Block, Expr, ExprIf, Stmt};

/// Kind of value at the end of a block.
pub(super) enum Ending {
    /// The function's `Result`, which is returned.
    Function,
    /// The value inside a `Result`.
    Result,
    /// A value, and the variables that get their first values in the block.
    Branch { all_literal: bool, outs: Vec<Ident> },
}

pub(super) fn with_outs(value: TokenStream, outs: &[Ident]) -> TokenStream {
    if outs.is_empty() { value } else { quote!((#value, #(#outs),*)) }
}

impl Lower {
    /// True if `expr`, which is a statement or the value of one, contains an exit that a tensor can decide.
    pub(super) fn leaves(&self, expr: &Expr) -> bool {
        let block = |block: &Block| block.stmts.iter().any(|stmt| self.stmt_leaves(stmt));
        match expr {
            Expr::If(branch) if binds(&branch.cond) => {
                block(&branch.then_branch) || branch.else_branch.as_ref().is_some_and(|(_, other)| self.leaves(other))
            }
            Expr::If(branch) => !self.is_plain(branch) && exits(expr).any(),
            Expr::Match(choice) => choice.arms.iter().any(|arm| self.leaves(&arm.body)),
            Expr::Block(inner) => inner.label.is_none() && block(&inner.block),
            Expr::Unsafe(inner) => block(&inner.block),
            Expr::While(looping) => !binds(&looping.cond) && block_exits(&looping.body).returns,
            Expr::ForLoop(looping) => block_exits(&looping.body).returns,
            _ => false,
        }
    }

    pub(super) fn stmt_leaves(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Expr(Expr::Assign(assign), _) => self.leaves(&assign.right),
            Stmt::Expr(expr, _) => self.leaves(expr),
            Stmt::Local(local) => local.init.as_ref().is_some_and(|init| init.diverge.is_none() && self.leaves(&init.expr)),
            _ => false,
        }
    }

    /// True if the condition must be a bool, because the branch contains an exit by label or with a value, or leaves a loop that remains
    /// Rust's own.
    pub(super) fn is_plain(&self, branch: &ExprIf) -> bool {
        let exits = exits(&Expr::If(branch.clone()));
        let looping = matches!(self.places.last(), Some(Leaves::Loop));
        exits.others || looping && exits.any()
    }

    /// Rewrites the body of a function.
    pub fn function(&mut self, stmts: &[Stmt]) -> TokenStream {
        if stmts.iter().any(|stmt| self.stmt_leaves(stmt)) {
            let (label, value, exit) = (self.label("function"), self.value.clone(), local("exit"));
            self.places.push(Leaves::Block(label.clone(), None));
            let body = self.exit_block(stmts, &Ending::Function);
            self.places.pop();
            quote!(let #exit: ag::Exit<(), #value> = #label: { #body }; ag::returned(#exit))
        } else {
            self.scoped(HashSet::new(), |this| {
                let last = stmts.len().saturating_sub(1);
                let stmts = stmts.iter().enumerate().map(|(index, stmt)| match stmt {
                    Stmt::Expr(expr, None) if index == last => this.tail(expr),
                    stmt => this.stmt(stmt),
                });
                stmts.collect()
            })
        }
    }

    /// Rewrites the final expression of a function. Branches return the values inside their `Result`s.
    pub(super) fn tail(&mut self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::If(branch) if !binds(&branch.cond) && branch.else_branch.is_some() => {
                let value = self.value_branch(branch, &Ending::Result);
                quote!(Ok(#value))
            }
            _ => self.expr(expr),
        }
    }

    /// Rewrites a block as an expression of type `Exit`, with `ending` as the kind of value at its end.
    pub(super) fn exit_block(&mut self, stmts: &[Stmt], ending: &Ending) -> TokenStream {
        self.scoped(HashSet::new(), |this| this.exit_stmts(stmts, ending))
    }

    pub(super) fn exit_stmts(&mut self, stmts: &[Stmt], ending: &Ending) -> TokenStream {
        let mut code = TokenStream::new();
        for (index, stmt) in stmts.iter().enumerate() {
            if self.stmt_leaves(stmt) {
                code.extend(self.exit_stmt(stmt, &stmts[index + 1..], ending));
                return code;
            }
            if let (Stmt::Expr(expr, None), true) = (stmt, index + 1 == stmts.len()) {
                code.extend(self.ending(Some(expr), ending));
                return code;
            }
            code.extend(self.stmt(stmt));
        }
        if !diverges(stmts) {
            code.extend(self.ending(None, ending));
        }
        code
    }

    /// Returns the exit at the end of a block. `expr` is the block's final expression, if it has one.
    pub(super) fn ending(&mut self, expr: Option<&Expr>, ending: &Ending) -> TokenStream {
        match (expr, ending) {
            (Some(expr), _) if diverging(expr) => self.expr(expr),
            (Some(expr), Ending::Function) => match self.unwrapped(expr) {
                value if is_err(expr) => value,
                value => quote!(ag::Exit::returns(#value)),
            },
            (Some(expr), Ending::Result) => {
                let value = self.unwrapped(expr);
                quote!(ag::Exit::next(#value))
            }
            (None, Ending::Function | Ending::Result) => quote!(ag::Exit::next(())),
            (Some(expr), Ending::Branch { all_literal, outs }) => {
                let value = self.arm_value(expr, *all_literal);
                let value = with_outs(value, outs);
                quote!(ag::Exit::next(#value))
            }
            (None, Ending::Branch { outs, .. }) => {
                let value = with_outs(quote!(()), outs);
                quote!(ag::Exit::next(#value))
            }
        }
    }

    /// Rewrites the value at the end of a branch. `all_literal` is true if both branches end in a literal.
    pub(super) fn arm_value(&mut self, expr: &Expr, all_literal: bool) -> TokenStream {
        let Some((branch, _)) = self.branches.last() else { return self.given(expr) };
        if !is_literal(expr) {
            return self.given(expr);
        }
        let (branch, method) = (branch.clone(), format_ident!("{}", if all_literal { "number" } else { "literal" }));
        quote_spanned!(expr.span()=> #branch.#method(#expr)?)
    }

    /// Rewrites a statement that can leave its block, and the rest of the block.
    pub(super) fn exit_stmt(&mut self, stmt: &Stmt, rest: &[Stmt], ending: &Ending) -> TokenStream {
        let (exit, value, guard, remaining) = (local("exit"), local("value"), local("guard"), local("rest"));
        let Some(expr) = leaving_part(stmt) else { return TokenStream::new() };
        let is_end = rest.is_empty() && matches!(stmt, Stmt::Expr(expr, None) if !matches!(expr, Expr::Assign(_)));
        if is_end && let Stmt::Expr(expr, _) = stmt {
            match ending {
                Ending::Function | Ending::Result if !is_unit(expr) => return self.exit_expr(expr, ending).0,
                Ending::Branch { outs, .. } if outs.is_empty() => return self.exit_expr(expr, ending).0,
                _ => (),
            }
        }
        let plain = Ending::Branch { all_literal: false, outs: Vec::new() };
        let (first, outs) = self.exit_expr(expr, &plain);
        let label = self.block_left().cloned();
        let bind = self.bind(stmt, &value);
        let unpack = match outs.is_empty() {
            true => bind,
            false => {
                let news: Vec<Ident> = outs.iter().map(|out| local(&format!("new_{out}"))).collect();
                outs.iter().for_each(|out| self.fill(&out.to_string()));
                quote!(let (#value, #(#news),*) = #value; #bind #(#outs = #news;)*)
            }
        };
        let places = if matches!(ending, Ending::Function) { Vec::new() } else { assigned(rest) };
        let own = |this: &Lower, place: &Place| !this.scopes.last().is_some_and(|scope| scope.contains_key(&place.root));
        let places: Vec<Place> = places.into_iter().filter(|place| own(self, place)).collect();
        let (places, _) = self.carried(places);
        let slots = self.slots(&places, Carrier::Rest);
        self.depth += 1;
        let after = self.label("rest");
        self.places.push(Leaves::Block(after.clone(), None));
        let body = self.exit_stmts(rest, ending);
        self.places.pop();
        self.depth -= 1;
        let unit = match ending {
            Ending::Function => quote!(()),
            _ => quote!(_),
        };
        let returned = &self.value;
        let label = label.map(|label| quote!(break #label)).unwrap_or(quote!(return));
        quote! {
            let #exit = #first;
            let (#value, #guard) = match ag::after(#exit)? {
                ag::After::Rest(#value, #guard) => (#value, #guard),
                ag::After::Left(#exit) => #label #exit,
            };
            #unpack
            let #remaining = #guard.begin(#slots)?;
            let #exit: ag::Exit<#unit, #returned> = #after: { #body };
            #remaining.end((ag::Values(&#exit).ops(), ag::Returns(&#exit).ops()), #exit, #slots)?
        }
    }

    /// Rewrites a `let`, an assignment or another statement with `value` in place of the expression that can leave the block.
    pub(super) fn bind(&mut self, stmt: &Stmt, value: &Ident) -> TokenStream {
        match stmt {
            Stmt::Local(item) => {
                self.declare(names(&item.pat), false);
                let pat = &item.pat;
                quote!(let #pat = #value;)
            }
            Stmt::Expr(Expr::Assign(assign), _) => {
                if let Expr::Path(path) = &*assign.left
                    && let Some(name) = path.path.get_ident()
                {
                    self.fill(&name.to_string());
                }
                let left = self.expr(&assign.left);
                quote!(#left = #value;)
            }
            _ => quote!(let () = #value;),
        }
    }

    /// Rewrites `expr`, which can be left early, as an expression of type `Exit`. Also returns the variables that get their first
    /// values in it. Their values follow the value of `expr` in a tuple.
    pub(super) fn exit_expr(&mut self, expr: &Expr, ending: &Ending) -> (TokenStream, Vec<Ident>) {
        match expr {
            Expr::If(branch) if !binds(&branch.cond) => self.exit_branch(branch, ending),
            Expr::If(branch) => {
                let mut lowered = branch.clone();
                *lowered.cond = Expr::Verbatim(self.expr(&branch.cond));
                let then = self.scoped(bound(&branch.cond), |this| this.exit_block(&branch.then_branch.stmts, ending));
                let other = match &branch.else_branch {
                    Some((_, other)) => self.exit_expr(other, ending).0,
                    None => self.ending(None, ending),
                };
                let cond = &lowered.cond;
                (quote!(if #cond { #then } else { #other }), Vec::new())
            }
            Expr::Match(choice) => {
                let on = self.expr(&choice.expr);
                let arms: Vec<TokenStream> = choice
                    .arms
                    .iter()
                    .map(|arm| {
                        self.scoped(names(&arm.pat), |this| {
                            let mut pat = arm.pat.clone();
                            this.guard(&mut pat);
                            let body = this.exit_expr(&arm.body, ending).0;
                            quote!(#pat => { #body })
                        })
                    })
                    .collect();
                (quote!(match #on { #(#arms)* }), Vec::new())
            }
            Expr::Block(inner) if inner.label.is_none() => {
                let body = self.exit_block(&inner.block.stmts, ending);
                (quote!({ #body }), Vec::new())
            }
            Expr::Unsafe(inner) => {
                let body = self.exit_block(&inner.block.stmts, ending);
                (quote!(unsafe { #body }), Vec::new())
            }
            Expr::While(looping) if self.leaves(expr) => (self.while_exit(looping), Vec::new()),
            Expr::ForLoop(looping) if self.leaves(expr) => (self.for_exit(looping), Vec::new()),
            expr => (self.ending(Some(expr), ending), Vec::new()),
        }
    }
}

/// Returns the expression of a statement that can leave the block: the right-hand side of a `let` or an assignment, or the whole statement.
/// Returns `None` for a statement without such an expression.
fn leaving_part(stmt: &Stmt) -> Option<&Expr> {
    match stmt {
        Stmt::Local(item) => item.init.as_ref().map(|init| &*init.expr),
        Stmt::Expr(Expr::Assign(assign), _) => Some(&assign.right),
        Stmt::Expr(expr, _) => Some(expr),
        _ => None,
    }
}

/// True if `expr` has no value other than `()`.
fn is_unit(expr: &Expr) -> bool {
    match expr {
        Expr::While(_) | Expr::ForLoop(_) => true,
        Expr::If(branch) => branch.else_branch.is_none(),
        _ => false,
    }
}
