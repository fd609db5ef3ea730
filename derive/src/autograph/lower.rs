//! Blocks, branches and loops.

use super::analysis::{self, Place, assigned, binds, block_exits, diverges, diverging, exits, is_err, is_literal, names};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use std::collections::{HashMap, HashSet};
use syn::spanned::Spanned;
use syn::{Block, Error, Expr, ExprAssign, ExprBreak, ExprClosure, ExprContinue, ExprIf, ExprReturn, Lifetime, Pat, Stmt};

/// What is known where the code stands that is being rewritten.
pub struct Lower {
    pub errors: Vec<Error>,
    /// The type that the function gives in its `Result`.
    pub value: TokenStream,
    /// The variables, and whether they have no value yet.
    scopes: Vec<HashMap<String, bool>>,
    /// The branches around, and how many scopes are around each.
    branches: Vec<(Ident, usize)>,
    /// The blocks around that are left by their labels.
    places: Vec<Leaves>,
    depth: usize,
}

/// What `return`, `break` and `continue` leave.
#[derive(Clone)]
enum Leaves {
    /// The function itself.
    Function,
    /// A block with a label, whose exit says how it was left; and the branch that it is, if it is one.
    Block(Lifetime, Option<Ident>),
    /// A loop that is Rust's own, for `break` and `continue`.
    Loop,
}

/// How the variables of a region are named where they are carried.
#[derive(Clone, Copy)]
pub enum Carrier<'a> {
    Region(&'a Ident),
    Each(&'a Ident),
    Rest,
}

pub fn local(name: &str) -> Ident {
    Ident::new(name, Span::mixed_site())
}

impl Lower {
    pub fn new(value: TokenStream) -> Lower {
        Lower { errors: Vec::new(), value, scopes: vec![HashMap::new()], branches: Vec::new(), places: vec![Leaves::Function], depth: 0 }
    }

    fn error(&mut self, span: Span, text: impl std::fmt::Display) {
        self.errors.push(Error::new(span, text));
    }

    pub fn declare(&mut self, names: impl IntoIterator<Item = String>, empty: bool) {
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(names.into_iter().map(|name| (name, empty)));
        }
    }

    pub fn scoped<T>(&mut self, names: HashSet<String>, run: impl FnOnce(&mut Self) -> T) -> T {
        self.scopes.push(names.into_iter().map(|name| (name, false)).collect());
        let result = run(self);
        self.scopes.pop();
        result
    }

    /// Whether the variable has no value yet; nothing, if there is no such variable.
    fn is_empty(&self, name: &str) -> Option<bool> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    fn fill(&mut self, name: &str) {
        if let Some(empty) = self.scopes.iter_mut().rev().find_map(|scope| scope.get_mut(name)) {
            *empty = false;
        }
    }

    fn numbered(&self, name: &str) -> Ident {
        if self.depth <= 1 { local(name) } else { local(&format!("{name}_{}", self.depth)) }
    }

    fn label(&self, name: &str) -> Lifetime {
        let name = if self.depth <= 1 { format!("'{name}") } else { format!("'{name}_{}", self.depth) };
        Lifetime::new(&name, Span::mixed_site())
    }

    /// The places that are carried, as arguments.
    pub fn slots(&self, places: &[Place], carrier: Carrier<'_>) -> TokenStream {
        let slot = |place: &Place| {
            let (name, expr) = (&place.name, &place.expr);
            match carrier {
                Carrier::Region(region) => quote_spanned!(place.span=> #region.slot(#name, &mut #expr)),
                Carrier::Each(region) => quote_spanned!(place.span=> #region.slot(ag::Probe(&mut #expr).slot(#name))),
                Carrier::Rest => quote_spanned!(place.span=> ag::Probe(&mut #expr).slot(#name)),
            }
        };
        let slots: Vec<TokenStream> = places.iter().map(slot).collect();
        if slots.len() > 8 {
            let groups = slots.chunks(8).map(|group| quote!((#(#group,)*)));
            return quote!((#(#groups,)*));
        }
        quote!((#(#slots,)*))
    }

    /// Divides what is assigned into what has a value before, which is carried, and what has none yet.
    pub fn carried(&self, places: Vec<Place>) -> (Vec<Place>, Vec<Place>) {
        places
            .into_iter()
            .filter(|place| self.is_empty(&place.root).is_some() || place.root == "self")
            .partition(|place| self.is_empty(&place.root) != Some(true))
    }

    /// What is given out of a branch: bare variables are copied, where both branches run.
    fn given(&mut self, expr: &Expr) -> TokenStream {
        let lowered = self.expr(expr);
        let Expr::Path(path) = expr else { return lowered };
        let Some(name) = path.path.get_ident().map(ToString::to_string) else { return lowered };
        let Some(depth) = self.scopes.iter().rposition(|scope| scope.contains_key(&name)) else { return lowered };
        let outside = self.branches.iter().filter(|(_, scopes)| depth < *scopes);
        let branches: Vec<&Ident> = outside.map(|(branch, _)| branch).collect();
        if branches.is_empty() { lowered } else { quote_spanned!(expr.span()=> ag::own!(#lowered, #(#branches),*)) }
    }

    /// The value that `expr`, a `Result`, is returned with: without its `Ok`.
    fn unwrapped(&mut self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Ok")) && call.args.len() == 1 => {
                self.given(&call.args[0])
            }
            _ if is_err(expr) => {
                let expr = self.expr(expr);
                quote!(return #expr)
            }
            _ => {
                let span = expr.span();
                let expr = self.expr(expr);
                quote_spanned!(span=> ag::ok(#expr)?)
            }
        }
    }

    // Ways to leave.

    fn block_left(&self) -> Option<&Lifetime> {
        self.places.iter().rev().find_map(|place| if let Leaves::Block(label, _) = place { Some(label) } else { None })
    }

    /// Leaves the innermost block with `exit`. What a bool decides leaves those around it at once, so that Rust knows what follows.
    fn leave(&self, span: Span, exit: &TokenStream) -> Option<TokenStream> {
        let mut through = Vec::new();
        for place in self.places.iter().rev() {
            let Leaves::Block(label, branch) = place else { continue };
            let Some(branch) = branch else {
                let through = through.iter().map(|(branch, label)| quote!(#branch #label));
                return Some(match through.len() {
                    0 => quote_spanned!(span=> break #label #exit),
                    _ => quote_spanned!(span=> ag::leave!(#exit, #(#through,)* #label)),
                });
            };
            through.push((branch, label));
        }
        None
    }

    pub fn return_expr(&mut self, exit: &ExprReturn) -> Option<TokenStream> {
        let expr = exit.expr.as_deref().filter(|expr| !is_err(expr))?;
        self.block_left()?;
        let value = self.unwrapped(expr);
        self.leave(exit.span(), &quote!(ag::Exit::returns(#value)))
    }

    pub fn break_expr(&mut self, exit: &ExprBreak) -> Option<TokenStream> {
        match self.places.last()? {
            Leaves::Block(..) if exit.label.is_none() && exit.expr.is_none() => self.leave(exit.span(), &quote!(ag::Exit::breaks())),
            _ => None,
        }
    }

    pub fn continue_expr(&mut self, exit: &ExprContinue) -> Option<TokenStream> {
        match self.places.last()? {
            Leaves::Block(..) if exit.label.is_none() => self.leave(exit.span(), &quote!(ag::Exit::continues())),
            _ => None,
        }
    }

    // Statements.

    /// A literal that is assigned to a variable becomes a tensor, if that is one.
    pub fn assign(&mut self, assign: &ExprAssign) -> Option<TokenStream> {
        let Expr::Path(path) = &*assign.left else { return self.assign_place(assign) };
        let name = path.path.get_ident()?.to_string();
        let empty = self.is_empty(&name)?;
        if !empty {
            return self.assign_place(assign);
        }
        let value = match self.branches.last() {
            Some((branch, _)) if is_literal(&assign.right) => {
                let (branch, right) = (branch.clone(), &assign.right);
                quote_spanned!(assign.right.span()=> #branch.literal(#right)?)
            }
            _ => self.given(&assign.right),
        };
        self.fill(&name);
        Some(quote_spanned!(assign.eq_token.span()=> #path = #value))
    }

    fn assign_place(&mut self, assign: &ExprAssign) -> Option<TokenStream> {
        if matches!(*assign.left, Expr::Infer(_) | Expr::Tuple(_)) {
            return None;
        }
        let (left, span) = (self.expr(&assign.left), assign.eq_token.span());
        if is_literal(&assign.right) {
            let right = &assign.right;
            return Some(quote_spanned!(span=> ag::Set(&mut #left).literal(#right)?));
        }
        let right = self.given(&assign.right);
        Some(quote_spanned!(span=> #left = #right))
    }

    pub fn closure(&mut self, closure: &ExprClosure) -> TokenStream {
        let mut closure = closure.clone();
        let before = closure.attrs.len();
        closure.attrs.retain(|attribute| !attribute.path().segments.last().is_some_and(|last| last.ident == "autograph"));
        if closure.attrs.len() == before {
            return quote!(#closure);
        }
        let value = match &closure.output {
            syn::ReturnType::Type(_, ty) => super::result_value(ty).unwrap_or(quote!(_)),
            syn::ReturnType::Default => quote!(_),
        };
        let mut inner = Lower::new(value);
        inner.scopes = self.scopes.clone();
        inner.scopes.push(closure.inputs.iter().flat_map(names).map(|name| (name, false)).collect());
        let stmts = match &*closure.body {
            Expr::Block(block) => block.block.stmts.clone(),
            body => vec![Stmt::Expr(body.clone(), None)],
        };
        let body = inner.function(&stmts);
        self.errors.append(&mut inner.errors);
        *closure.body = Expr::Verbatim(quote!({ #body }));
        quote!(#closure)
    }

    /// Statements as they are, in a scope of their own.
    pub fn plain_block(&mut self, stmts: &[Stmt]) -> TokenStream {
        self.scoped(HashSet::new(), |this| stmts.iter().map(|stmt| this.stmt(stmt)).collect())
    }

    pub fn stmt(&mut self, stmt: &Stmt) -> TokenStream {
        match stmt {
            Stmt::Local(local) => {
                let mut lowered = local.clone();
                if let Some(init) = &mut lowered.init {
                    *init.expr = Expr::Verbatim(self.given(&init.expr));
                    if let Some((_, other)) = &mut init.diverge {
                        **other = Expr::Verbatim(self.expr(other));
                    }
                }
                self.declare(names(&local.pat), local.init.is_none());
                quote!(#lowered)
            }
            Stmt::Expr(expr, semi) => {
                let lowered = self.expr(expr);
                // A macro's code stands where a statement stood.
                let semi = semi.map(|semi| quote!(#semi)).or(matches!(expr, Expr::Assign(_)).then(|| quote!(;)));
                quote!(#lowered #semi)
            }
            Stmt::Macro(mac) => match self.known_macro(&mac.mac) {
                Some(lowered) => quote!(#lowered),
                None => quote!(#mac),
            },
            Stmt::Item(item) => quote!(#item),
        }
    }

    // Blocks that are left early.

    /// Whether `expr`, a statement or its value, can be left by a way that a tensor decides.
    fn leaves(&self, expr: &Expr) -> bool {
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

    fn stmt_leaves(&self, stmt: &Stmt) -> bool {
        match stmt {
            Stmt::Expr(Expr::Assign(assign), _) => self.leaves(&assign.right),
            Stmt::Expr(expr, _) => self.leaves(expr),
            Stmt::Local(local) => local.init.as_ref().is_some_and(|init| init.diverge.is_none() && self.leaves(&init.expr)),
            _ => false,
        }
    }

    /// Whether only a bool can decide: what the branch leaves is not a loop that a tensor can decide over.
    fn is_plain(&self, branch: &ExprIf) -> bool {
        let exits = exits(&Expr::If(branch.clone()));
        let looping = matches!(self.places.last(), Some(Leaves::Loop));
        exits.others || looping && exits.any()
    }

    /// The body of a function.
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

    /// The end of a function: branches give what is in their results.
    fn tail(&mut self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::If(branch) if !binds(&branch.cond) && branch.else_branch.is_some() => {
                let value = self.value_branch(branch, &Ending::Result);
                quote!(Ok(#value))
            }
            _ => self.expr(expr),
        }
    }

    /// The exit of a block: how it is left, with what `ending` says at its end.
    fn exit_block(&mut self, stmts: &[Stmt], ending: &Ending) -> TokenStream {
        self.scoped(HashSet::new(), |this| this.exit_stmts(stmts, ending))
    }

    fn exit_stmts(&mut self, stmts: &[Stmt], ending: &Ending) -> TokenStream {
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

    /// The exit at the end of a block.
    fn ending(&mut self, expr: Option<&Expr>, ending: &Ending) -> TokenStream {
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

    /// What a branch gives at its end.
    fn arm_value(&mut self, expr: &Expr, all_literal: bool) -> TokenStream {
        let Some((branch, _)) = self.branches.last() else { return self.given(expr) };
        if !is_literal(expr) {
            return self.given(expr);
        }
        let (branch, method) = (branch.clone(), format_ident!("{}", if all_literal { "number" } else { "literal" }));
        quote_spanned!(expr.span()=> #branch.#method(#expr)?)
    }

    /// A statement that can leave its block, and the rest of the block.
    fn exit_stmt(&mut self, stmt: &Stmt, rest: &[Stmt], ending: &Ending) -> TokenStream {
        let (exit, value, guard, remaining) = (local("exit"), local("value"), local("guard"), local("rest"));
        let (expr, bind): (&Expr, Box<dyn Fn(&mut Lower) -> TokenStream>) = match stmt {
            Stmt::Local(item) => {
                let (pat, init) = (item.pat.clone(), item.init.as_ref().expect("it leaves"));
                let value = value.clone();
                let bind = move |this: &mut Lower| {
                    this.declare(names(&pat), false);
                    quote!(let #pat = #value;)
                };
                (&*init.expr, Box::new(bind))
            }
            Stmt::Expr(Expr::Assign(assign), _) => {
                let (left, value) = (assign.left.clone(), value.clone());
                let bind = move |this: &mut Lower| {
                    if let Expr::Path(path) = &*left
                        && let Some(name) = path.path.get_ident()
                    {
                        this.fill(&name.to_string());
                    }
                    let left = this.expr(&left);
                    quote!(#left = #value;)
                };
                (&*assign.right, Box::new(bind))
            }
            Stmt::Expr(expr, _) => {
                let value = value.clone();
                (expr, Box::new(move |_: &mut Lower| quote!(let () = #value;)))
            }
            _ => return TokenStream::new(),
        };
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
        let bind = bind(self);
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

    /// `expr`, which can be left early, as an exit; and the variables that get their first values in it, which its value has after its own.
    fn exit_expr(&mut self, expr: &Expr, ending: &Ending) -> (TokenStream, Vec<Ident>) {
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

    // Loops.

    pub fn enter_loop(&mut self) -> Ident {
        self.depth += 1;
        self.numbered("looping")
    }

    pub fn leave_loop(&mut self) {
        self.depth -= 1;
    }

    /// The body of a loop whose `break` and `continue` are Rust's own.
    pub fn native_body(&mut self, body: &Block) -> TokenStream {
        self.places.push(Leaves::Loop);
        let body = self.plain_block(&body.stmts);
        self.places.pop();
        body
    }

    /// The body of a loop as an exit, and the label that leaves it.
    pub fn iteration_block(&mut self, body: &Block, returned: &TokenStream) -> (Lifetime, TokenStream) {
        let label = self.label("iteration");
        self.places.push(Leaves::Block(label.clone(), None));
        let value = std::mem::replace(&mut self.value, returned.clone());
        let body = self.exit_block(&body.stmts, &Ending::Branch { all_literal: false, outs: Vec::new() });
        self.value = value;
        self.places.pop();
        (label, body)
    }

    /// What follows an exit that is no statement of its own: it is left there and then, if it is.
    pub fn settled(&mut self, exit: TokenStream) -> TokenStream {
        let leave = match self.block_left() {
            Some(label) => quote!(break #label left),
            None => quote!(return ag::returned(left)),
        };
        quote!(if let ::core::option::Option::Some(left) = ag::settled(#exit)? { #leave; })
    }

    /// Only a bool can decide in a pattern's guard.
    pub fn guard(&mut self, pat: &mut Pat) {
        if let Pat::Guard(pat) = pat {
            let (span, guard) = (pat.guard.span(), self.expr(&pat.guard));
            *pat.guard = Expr::Verbatim(quote_spanned!(span=> ag::plain(#guard)));
        }
    }

    // Branches.

    /// What an `if` is where its value is asked for, or nobody asks for one; nothing, if it is Rust's own.
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
            // A way out that is no statement of its own, or out of what a tensor cannot decide over.
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

    /// An `if` that is not left early.
    fn value_branch(&mut self, branch: &ExprIf, ending: &Ending) -> TokenStream {
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
        let lets = outs.iter().map(|out| quote!(let #out;));
        let run = quote! {
            loop {
                #(#lets)*
                let #value = if #name.chosen() { #then } else { #other };
                match #name.end(#given, #slots)? {
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

    fn unwrapped_tail(&mut self, expr: &Expr) -> TokenStream {
        match expr {
            Expr::If(branch) if !binds(&branch.cond) && branch.else_branch.is_some() && !exits(expr).any() => {
                self.value_branch(branch, &Ending::Result)
            }
            _ => self.unwrapped(expr),
        }
    }

    /// An `if` that can be left early, as an exit.
    fn exit_branch(&mut self, branch: &ExprIf, ending: &Ending) -> (TokenStream, Vec<Ident>) {
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
        let lets = outs.iter().map(|out| quote!(let #out;));
        let code = quote! {{
            let mut #name = ag::branch(#cond)?;
            #name.begin(#slots)?;
            loop {
                #(#lets)*
                let #exit: ag::Exit<#unit, #returned> = #label: { if #name.chosen() { #then } else { #other } };
                match #name.leave(#exit, #slots)? {
                    ag::Ran::Done(#exit) => break #exit,
                    ag::Ran::Again(again) => { again.go(); }
                }
            }
        }};
        (code, region.outs)
    }

    /// Both branches, an `else if` being a block with an `if` in it.
    fn arms(
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

    fn close(&mut self, _: &Region) {
        self.branches.pop();
        self.scopes.pop();
        self.depth -= 1;
    }
}

/// The variables that the `let`s in a condition bind.
pub fn bound(cond: &Expr) -> HashSet<String> {
    match cond {
        Expr::Let(expr) => names(&expr.pat),
        Expr::Binary(binary) => bound(&binary.left).into_iter().chain(bound(&binary.right)).collect(),
        Expr::Paren(paren) => bound(&paren.expr),
        _ => HashSet::new(),
    }
}

/// Whether nobody can ask for a value of `expr`.
fn is_unit(expr: &Expr) -> bool {
    match expr {
        Expr::While(_) | Expr::ForLoop(_) => true,
        Expr::If(branch) => branch.else_branch.is_none(),
        _ => false,
    }
}

/// What the end of a block gives.
enum Ending {
    /// The function's result, which it returns.
    Function,
    /// What is in a result.
    Result,
    /// A value, and the variables that got their first values in the block.
    Branch { all_literal: bool, outs: Vec<Ident> },
}

fn with_outs(value: TokenStream, outs: &[Ident]) -> TokenStream {
    if outs.is_empty() { value } else { quote!((#value, #(#outs),*)) }
}

/// A branch that is being rewritten.
struct Region {
    name: Ident,
    cond: TokenStream,
    slots: TokenStream,
    /// The variables that get their first values in it.
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

/// A variable that gets its first value in one branch must get one in the other.
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
