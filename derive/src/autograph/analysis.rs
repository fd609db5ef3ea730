//! Analysis of blocks: the variables that they assign, the exits that they contain, and the assignments on every path.

use proc_macro2::Span;
use quote::ToTokens;
use std::collections::HashSet;
use syn::visit::{self, Visit};
use syn::{
    Arm, BinOp, Block, Expr, ExprAssign, ExprBinary, ExprClosure, ExprForLoop, ExprLoop, ExprReference, ExprWhile, Item, Local, Pat, Stmt,
};

/// Place expression that is assigned, and carried if the condition is a tensor.
#[derive(Clone)]
pub struct Place {
    /// Source text: `x`, `self.h`, `*out`.
    pub name: String,
    /// The variable at the root of the place expression, such as `a` in `a.b[i]`.
    pub root: String,
    pub expr: Expr,
    pub span: Span,
}

/// Returns the place that `expr = …` assigns, or `None` if it assigns none. Indices are dropped, because the whole container is carried.
fn place(expr: &Expr) -> Option<Place> {
    let make = |expr: &Expr, root: String| {
        let name = expr.to_token_stream().to_string().replace(" . ", ".").replace("* ", "*");
        Some(Place { name, root, expr: expr.clone(), span: syn::spanned::Spanned::span(expr) })
    };
    match expr {
        Expr::Path(path) => make(expr, path.path.get_ident()?.to_string()),
        Expr::Field(field) => {
            let base = place(&field.base)?;
            if base.name.ends_with(']') || whole(&field.base) { make(expr, base.root) } else { Some(base) }
        }
        Expr::Unary(unary) if matches!(unary.op, syn::UnOp::Deref(_)) => {
            let base = place(&unary.expr)?;
            if whole(&unary.expr) { make(expr, base.root) } else { Some(base) }
        }
        Expr::Index(index) => place(&index.expr),
        Expr::Paren(paren) => place(&paren.expr),
        _ => None,
    }
}

/// True if `expr` is a place expression without indices.
fn whole(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) => true,
        Expr::Field(field) => whole(&field.base),
        Expr::Unary(unary) => whole(&unary.expr),
        Expr::Paren(paren) => whole(&paren.expr),
        _ => false,
    }
}

/// Returns the names that a pattern binds.
pub fn names(pattern: &Pat) -> HashSet<String> {
    struct Names(HashSet<String>);
    impl<'ast> Visit<'ast> for Names {
        fn visit_pat_ident(&mut self, pattern: &'ast syn::PatIdent) {
            self.0.insert(pattern.ident.to_string());
            visit::visit_pat_ident(self, pattern);
        }
    }
    let mut names = Names(HashSet::new());
    names.visit_pat(pattern);
    names.0
}

/// Visitor that finds assigned places declared outside the visited code.
#[derive(Default)]
struct Assigned {
    scopes: Vec<HashSet<String>>,
    places: Vec<Place>,
}

impl Assigned {
    fn add(&mut self, expr: &Expr) {
        let Some(place) = place(expr) else { return };
        if self.scopes.iter().any(|scope| scope.contains(&place.root)) || self.places.iter().any(|other| other.name == place.name) {
            return;
        }
        self.places.push(place);
    }

    fn inside(&mut self, names: HashSet<String>, visit: impl FnOnce(&mut Self)) {
        self.scopes.push(names);
        visit(self);
        self.scopes.pop();
    }
}

impl<'ast> Visit<'ast> for Assigned {
    fn visit_block(&mut self, block: &'ast Block) {
        self.inside(HashSet::new(), |this| visit::visit_block(this, block));
    }
    fn visit_local(&mut self, local: &'ast Local) {
        visit::visit_local(self, local);
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(names(&local.pat));
        }
    }
    fn visit_arm(&mut self, arm: &'ast Arm) {
        self.inside(names(&arm.pat), |this| visit::visit_arm(this, arm));
    }
    fn visit_expr_for_loop(&mut self, looping: &'ast ExprForLoop) {
        self.visit_expr(&looping.expr);
        self.inside(names(&looping.pat), |this| this.visit_block(&looping.body));
    }
    fn visit_expr_closure(&mut self, closure: &'ast ExprClosure) {
        let parameters = closure.inputs.iter().flat_map(names).collect();
        self.inside(parameters, |this| visit::visit_expr_closure(this, closure));
    }
    fn visit_expr_let(&mut self, expr: &'ast syn::ExprLet) {
        visit::visit_expr_let(self, expr);
        if let Some(scope) = self.scopes.last_mut() {
            scope.extend(names(&expr.pat));
        }
    }
    fn visit_expr_if(&mut self, branch: &'ast syn::ExprIf) {
        self.inside(HashSet::new(), |this| visit::visit_expr_if(this, branch));
    }
    fn visit_expr_while(&mut self, looping: &'ast ExprWhile) {
        self.inside(HashSet::new(), |this| visit::visit_expr_while(this, looping));
    }
    fn visit_expr_assign(&mut self, assign: &'ast ExprAssign) {
        visit::visit_expr_assign(self, assign);
        self.add(&assign.left);
        if let Expr::Tuple(tuple) = &*assign.left {
            tuple.elems.iter().for_each(|element| self.add(element));
        }
    }
    fn visit_expr_binary(&mut self, binary: &'ast ExprBinary) {
        visit::visit_expr_binary(self, binary);
        if changes(&binary.op) {
            self.add(&binary.left);
        }
    }
    fn visit_expr_reference(&mut self, reference: &'ast ExprReference) {
        visit::visit_expr_reference(self, reference);
        if reference.mutability.is_some() {
            self.add(&reference.expr);
        }
    }
    fn visit_item(&mut self, _: &'ast Item) {}
}

/// True if the operator changes its left operand.
pub fn changes(op: &BinOp) -> bool {
    use BinOp::*;
    matches!(
        op,
        AddAssign(_)
            | SubAssign(_)
            | MulAssign(_)
            | DivAssign(_)
            | RemAssign(_)
            | BitXorAssign(_)
            | BitAndAssign(_)
            | BitOrAssign(_)
            | ShlAssign(_)
            | ShrAssign(_)
    )
}

/// Returns the places that `stmts` assign and that are declared outside, in the order of their first assignments. A place inside
/// another assigned place is omitted.
pub fn assigned<'a>(stmts: impl IntoIterator<Item = &'a Stmt>) -> Vec<Place> {
    let mut found = Assigned { scopes: vec![HashSet::new()], places: Vec::new() };
    stmts.into_iter().for_each(|stmt| found.visit_stmt(stmt));
    let all = found.places.clone();
    let part = |place: &Place| all.iter().any(|other| place.name != other.name && place.name.starts_with(&format!("{}.", other.name)));
    found.places.into_iter().filter(|place| !part(place)).collect()
}

/// Exits that a block contains, other than its end.
#[derive(Clone, Copy, Default)]
pub struct Exits {
    pub returns: bool,
    pub breaks: bool,
    pub continues: bool,
    /// True for exits by label or with a value, which only plain Rust supports.
    pub others: bool,
}

impl Exits {
    pub fn any(self) -> bool {
        self.returns || self.breaks || self.continues
    }
}

#[derive(Default)]
struct Leaving {
    exits: Exits,
    loops: usize,
    labels: Vec<String>,
}

impl<'ast> Visit<'ast> for Leaving {
    fn visit_expr_return(&mut self, exit: &'ast syn::ExprReturn) {
        visit::visit_expr_return(self, exit);
        self.exits.returns |= !exit.expr.as_deref().is_some_and(is_err);
    }
    fn visit_expr_break(&mut self, exit: &'ast syn::ExprBreak) {
        visit::visit_expr_break(self, exit);
        match &exit.label {
            Some(label) => self.exits.others |= !self.labels.contains(&label.ident.to_string()),
            None if self.loops == 0 && exit.expr.is_some() => self.exits.others = true,
            None => self.exits.breaks |= self.loops == 0,
        }
    }
    fn visit_expr_continue(&mut self, exit: &'ast syn::ExprContinue) {
        match &exit.label {
            Some(label) => self.exits.others |= !self.labels.contains(&label.ident.to_string()),
            None => self.exits.continues |= self.loops == 0,
        }
    }
    fn visit_expr_loop(&mut self, looping: &'ast ExprLoop) {
        self.within(looping.label.as_ref(), |this| visit::visit_expr_loop(this, looping));
    }
    fn visit_expr_while(&mut self, looping: &'ast ExprWhile) {
        self.within(looping.label.as_ref(), |this| visit::visit_expr_while(this, looping));
    }
    fn visit_expr_for_loop(&mut self, looping: &'ast ExprForLoop) {
        self.within(looping.label.as_ref(), |this| visit::visit_expr_for_loop(this, looping));
    }
    fn visit_expr_closure(&mut self, _: &'ast ExprClosure) {}
    fn visit_expr_async(&mut self, _: &'ast syn::ExprAsync) {}
    fn visit_item(&mut self, _: &'ast Item) {}
}

impl Leaving {
    fn within(&mut self, label: Option<&syn::Label>, visit: impl FnOnce(&mut Self)) {
        self.loops += 1;
        self.labels.extend(label.map(|label| label.name.ident.to_string()));
        visit(self);
        self.loops -= 1;
    }
}

/// True if `expr` is `Err(…)`. An error leaves the function, even if the condition is a tensor.
pub fn is_err(expr: &Expr) -> bool {
    matches!(expr, Expr::Call(call) if matches!(&*call.func, Expr::Path(path) if path.path.is_ident("Err")))
}

/// Returns the exits that `expr` contains.
pub fn exits(expr: &Expr) -> Exits {
    let mut leaving = Leaving::default();
    leaving.visit_expr(expr);
    leaving.exits
}

/// Returns the exits that `block` contains.
pub fn block_exits(block: &Block) -> Exits {
    let mut leaving = Leaving::default();
    leaving.visit_block(block);
    leaving.exits
}

/// True if `expr` is a condition with a `let`.
pub fn binds(expr: &Expr) -> bool {
    match expr {
        Expr::Let(_) => true,
        Expr::Binary(binary) => binds(&binary.left) || binds(&binary.right),
        Expr::Paren(paren) => binds(&paren.expr),
        _ => false,
    }
}

/// True if `stmts` never reach their end.
pub fn diverges(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match stmt {
        Stmt::Expr(expr, _) => diverging(expr),
        Stmt::Macro(mac) => ["panic", "unreachable", "todo", "unimplemented"].iter().any(|name| mac.mac.path.is_ident(name)),
        _ => false,
    })
}

pub fn diverging(expr: &Expr) -> bool {
    match expr {
        Expr::Return(_) | Expr::Break(_) | Expr::Continue(_) => true,
        Expr::Block(block) => diverges(&block.block.stmts),
        Expr::If(branch) => diverges(&branch.then_branch.stmts) && branch.else_branch.as_ref().is_some_and(|(_, other)| diverging(other)),
        Expr::Match(choice) => !choice.arms.is_empty() && choice.arms.iter().all(|arm| diverging(&arm.body)),
        _ => false,
    }
}

/// True if `stmts` assign the variable `name` on every path to their end.
pub fn surely_assigns(stmts: &[Stmt], name: &str) -> bool {
    diverges(stmts) || stmts.iter().any(|stmt| matches!(stmt, Stmt::Expr(expr, _) if assigns(expr, name)))
}

pub fn assigns(expr: &Expr, name: &str) -> bool {
    match expr {
        Expr::Assign(assign) => match &*assign.left {
            Expr::Path(path) => path.path.is_ident(name),
            Expr::Tuple(tuple) => tuple.elems.iter().any(|left| matches!(left, Expr::Path(path) if path.path.is_ident(name))),
            _ => false,
        },
        Expr::Block(block) => surely_assigns(&block.block.stmts, name),
        Expr::If(branch) => {
            surely_assigns(&branch.then_branch.stmts, name)
                && branch.else_branch.as_ref().is_some_and(|(_, other)| diverging(other) || assigns(other, name))
        }
        Expr::Match(choice) => choice.arms.iter().all(|arm| diverging(&arm.body) || assigns(&arm.body, name)),
        Expr::Loop(_) => true,
        _ => diverging(expr),
    }
}

/// True if `expr` is a number or bool literal.
pub fn is_literal(expr: &Expr) -> bool {
    match expr {
        Expr::Lit(literal) => matches!(literal.lit, syn::Lit::Int(_) | syn::Lit::Float(_) | syn::Lit::Bool(_)),
        Expr::Unary(unary) => matches!(unary.op, syn::UnOp::Neg(_)) && is_literal(&unary.expr),
        Expr::Paren(paren) => is_literal(&paren.expr),
        _ => false,
    }
}
