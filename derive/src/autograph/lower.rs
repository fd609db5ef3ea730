//! Functions and statements, and the state of the rewriter.

use super::analysis::{Place, is_err, is_literal, names};
use super::exits::Ending;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{quote, quote_spanned};
use std::collections::{HashMap, HashSet};
use syn::spanned::Spanned;
use syn::{Block, Error, Expr, ExprAssign, ExprBreak, ExprClosure, ExprContinue, ExprReturn, Lifetime, Pat, Stmt};

/// State of the rewriter at the current position in the source.
pub struct Lower {
    pub errors: Vec<Error>,
    /// Type inside the function's `Result`.
    pub value: TokenStream,
    /// Variables of each scope. The value is true if the variable has not been initialized yet.
    pub(super) scopes: Vec<HashMap<String, bool>>,
    /// Enclosing branches, each with the number of scopes that enclose it.
    pub(super) branches: Vec<(Ident, usize)>,
    /// Enclosing blocks that `return`, `break` and `continue` can leave.
    pub(super) places: Vec<Leaves>,
    pub(super) depth: usize,
}

/// Target of `return`, `break` and `continue`.
#[derive(Clone)]
pub(super) enum Leaves {
    /// The function itself.
    Function,
    /// Block with a label, which evaluates to an exit, and the branch to which it belongs, if any.
    Block(Lifetime, Option<Ident>),
    /// Loop that is Rust's own, as the target of `break` and `continue`.
    Loop,
}

/// Form in which a region names the variables that it carries.
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

    pub(super) fn error(&mut self, span: Span, text: impl std::fmt::Display) {
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

    /// Returns true if the variable has not been initialized yet, or `None` if there is no such variable.
    pub(super) fn is_empty(&self, name: &str) -> Option<bool> {
        self.scopes.iter().rev().find_map(|scope| scope.get(name)).copied()
    }

    pub(super) fn fill(&mut self, name: &str) {
        if let Some(empty) = self.scopes.iter_mut().rev().find_map(|scope| scope.get_mut(name)) {
            *empty = false;
        }
    }

    pub(super) fn numbered(&self, name: &str) -> Ident {
        if self.depth <= 1 { local(name) } else { local(&format!("{name}_{}", self.depth)) }
    }

    pub(super) fn label(&self, name: &str) -> Lifetime {
        let name = if self.depth <= 1 { format!("'{name}") } else { format!("'{name}_{}", self.depth) };
        Lifetime::new(&name, Span::mixed_site())
    }

    /// Returns the carried places as a tuple of slots, the argument of the generated calls.
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

    /// Splits assigned places into those that are already initialized, which are carried, and those that are not.
    pub fn carried(&self, places: Vec<Place>) -> (Vec<Place>, Vec<Place>) {
        places
            .into_iter()
            .filter(|place| self.is_empty(&place.root).is_some() || place.root == "self")
            .partition(|place| self.is_empty(&place.root) != Some(true))
    }

    /// Rewrites the result of a branch. If both branches run, a result that is just a variable is cloned.
    pub(super) fn given(&mut self, expr: &Expr) -> TokenStream {
        let lowered = self.expr(expr);
        let Expr::Path(path) = expr else { return lowered };
        let Some(name) = path.path.get_ident().map(ToString::to_string) else { return lowered };
        let Some(depth) = self.scopes.iter().rposition(|scope| scope.contains_key(&name)) else { return lowered };
        let outside = self.branches.iter().filter(|(_, scopes)| depth < *scopes);
        let branches: Vec<&Ident> = outside.map(|(branch, _)| branch).collect();
        if branches.is_empty() { lowered } else { quote_spanned!(expr.span()=> ag::own!(#lowered, #(#branches),*)) }
    }

    /// Rewrites `expr`, a returned `Result`, as the value inside its `Ok`.
    pub(super) fn unwrapped(&mut self, expr: &Expr) -> TokenStream {
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

    // Exits.

    pub(super) fn block_left(&self) -> Option<&Lifetime> {
        self.places.iter().rev().find_map(|place| if let Leaves::Block(label, _) = place { Some(label) } else { None })
    }

    /// Leaves the innermost block with `exit`. With a bool condition, the code also leaves the enclosing blocks directly, so that
    /// Rust's control flow analysis sees it.
    pub(super) fn leave(&self, span: Span, exit: &TokenStream) -> Option<TokenStream> {
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

    /// Rewrites an assignment. A literal becomes a tensor if the variable is one. Returns `None` for an assignment that is not
    /// rewritten as a whole, such as one to a tuple.
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

    pub(super) fn assign_place(&mut self, assign: &ExprAssign) -> Option<TokenStream> {
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
        closure.attrs.retain(|attribute| attribute.path().segments.last().is_none_or(|last| last.ident != "autograph"));
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

    /// Rewrites statements in a scope of their own, without an exit.
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
                // The rewritten code takes the place of a statement, so it needs the semicolon.
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

    pub fn enter_loop(&mut self) -> Ident {
        self.depth += 1;
        self.numbered("looping")
    }

    pub fn leave_loop(&mut self) {
        self.depth -= 1;
    }

    /// Rewrites the body of a loop whose `break` and `continue` are Rust's own.
    pub fn native_body(&mut self, body: &Block) -> TokenStream {
        self.places.push(Leaves::Loop);
        let body = self.plain_block(&body.stmts);
        self.places.pop();
        body
    }

    /// Rewrites the body of a loop as an expression of type `Exit`. Returns the label of the body, and the expression.
    pub fn iteration_block(&mut self, body: &Block, returned: &TokenStream) -> (Lifetime, TokenStream) {
        let label = self.label("iteration");
        self.places.push(Leaves::Block(label.clone(), None));
        let value = std::mem::replace(&mut self.value, returned.clone());
        let body = self.exit_block(&body.stmts, &Ending::Branch { all_literal: false, outs: Vec::new() });
        self.value = value;
        self.places.pop();
        (label, body)
    }

    /// Returns code that leaves the enclosing block or function if `exit` is not the exit at the end.
    pub fn settled(&mut self, exit: TokenStream) -> TokenStream {
        let leave = match self.block_left() {
            Some(label) => quote!(break #label left),
            None => quote!(return ag::returned(left)),
        };
        quote!(if let ::core::option::Option::Some(left) = ag::settled(#exit)? { #leave; })
    }

    /// Rewrites a pattern's guard, whose condition must be a bool.
    pub fn guard(&mut self, pat: &mut Pat) {
        if let Pat::Guard(pat) = pat {
            let (span, guard) = (pat.guard.span(), self.expr(&pat.guard));
            *pat.guard = Expr::Verbatim(quote_spanned!(span=> ag::plain(#guard)));
        }
    }
}

/// Returns the variables that the `let`s in a condition bind.
pub fn bound(cond: &Expr) -> HashSet<String> {
    match cond {
        Expr::Let(expr) => names(&expr.pat),
        Expr::Binary(binary) => bound(&binary.left).into_iter().chain(bound(&binary.right)).collect(),
        Expr::Paren(paren) => bound(&paren.expr),
        _ => HashSet::new(),
    }
}
