//! Expressions: operators become calls that work on tensors and on plain values.

use super::analysis::is_literal;
use super::lower::Lower;
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit_mut::{self, VisitMut};
use syn::{BinOp, Expr, ExprBinary, ExprUnary, Macro, Token, UnOp};

/// Returns `lowered`, the rewritten code of the operand `of`, in a form to which `&` can be applied.
fn operand(lowered: &TokenStream, of: &Expr) -> TokenStream {
    match of {
        Expr::Cast(_) | Expr::Range(_) | Expr::Closure(_) | Expr::Let(_) => quote!((#lowered)),
        _ => lowered.clone(),
    }
}

fn is_place(expr: &Expr) -> bool {
    match expr {
        Expr::Path(_) | Expr::Field(_) | Expr::Index(_) => true,
        Expr::Paren(paren) => is_place(&paren.expr),
        Expr::Unary(unary) => matches!(unary.op, UnOp::Deref(_)),
        _ => false,
    }
}

/// Returns the name of the method that replaces an operator, or `None` if the operator is not replaced.
fn method(op: &BinOp) -> Option<&'static str> {
    Some(match op {
        BinOp::Add(_) | BinOp::AddAssign(_) => "add",
        BinOp::Sub(_) | BinOp::SubAssign(_) => "sub",
        BinOp::Mul(_) | BinOp::MulAssign(_) => "mul",
        BinOp::Div(_) | BinOp::DivAssign(_) => "div",
        BinOp::Rem(_) | BinOp::RemAssign(_) => "rem",
        BinOp::Lt(_) => "less",
        BinOp::Le(_) => "less_equal",
        BinOp::Gt(_) => "greater",
        BinOp::Ge(_) => "greater_equal",
        BinOp::Eq(_) => "equal",
        BinOp::Ne(_) => "not_equal",
        _ => return None,
    })
}

fn is_assigning(op: &BinOp) -> bool {
    matches!(op, BinOp::AddAssign(_) | BinOp::SubAssign(_) | BinOp::MulAssign(_) | BinOp::DivAssign(_) | BinOp::RemAssign(_))
}

impl Lower {
    /// Returns the rewritten code of `expr`.
    pub fn expr(&mut self, expr: &Expr) -> TokenStream {
        let mut expr = expr.clone();
        self.visit_expr_mut(&mut expr);
        expr.into_token_stream()
    }

    pub fn binary(&mut self, binary: &ExprBinary) -> Option<TokenStream> {
        if is_literal(&binary.left) && is_literal(&binary.right) {
            return None;
        }
        let span = binary.op.span();
        let (left, right) = (self.expr(&binary.left), self.expr(&binary.right));
        if let BinOp::And(_) | BinOp::Or(_) = binary.op {
            let name = Ident::new(if matches!(binary.op, BinOp::And(_)) { "and" } else { "or" }, span);
            return Some(quote_spanned!(span=> ag::#name(#left, || Ok(#right))?));
        }
        let name = Ident::new(method(&binary.op)?, span);
        if is_assigning(&binary.op) {
            let by = Ident::new("by", Span::mixed_site());
            return Some(if is_place(&binary.right) {
                quote_spanned!(span=> { let #by = ag::copy(&#right); ag::Assign(&mut #left, #by).#name()? })
            } else if is_literal(&binary.right) {
                quote_spanned!(span=> ag::Assign(&mut #left, #right).#name()?)
            } else {
                quote_spanned!(span=> { let #by = #right; ag::Assign(&mut #left, #by).#name()? })
            });
        }
        let (left, right) = (operand(&left, &binary.left), operand(&right, &binary.right));
        Some(quote_spanned!(span=> ag::Pair(&#left, &#right).#name()?))
    }

    pub fn unary(&mut self, unary: &ExprUnary) -> Option<TokenStream> {
        let name = match unary.op {
            UnOp::Neg(_) => "minus",
            UnOp::Not(_) => "invert",
            _ => return None,
        };
        if is_literal(&unary.expr) {
            return None;
        }
        let span = unary.op.span();
        let name = Ident::new(name, span);
        let inner = operand(&self.expr(&unary.expr), &unary.expr);
        Some(quote_spanned!(span=> ag::Single(&#inner).#name()?))
    }

    /// Rewrites `assert!` and `vec!`. Returns `None` for any other macro, because the meaning of its tokens is not known.
    pub fn known_macro(&mut self, mac: &Macro) -> Option<TokenStream> {
        let parse = Punctuated::<Expr, Token![,]>::parse_terminated;
        if mac.path.is_ident("vec") {
            let elements = mac.parse_body_with(parse).ok()?;
            let elements: Vec<TokenStream> = elements.iter().map(|element| self.expr(element)).collect();
            let path = &mac.path;
            return Some(quote!(#path![#(#elements),*]));
        }
        if !mac.path.is_ident("assert") {
            return None;
        }
        let arguments = mac.parse_body_with(parse).ok()?;
        let mut arguments = arguments.iter();
        let condition = arguments.next()?;
        let message: Vec<&Expr> = arguments.collect();
        let message = if message.is_empty() {
            let text = format!("assertion failed: {}", condition.to_token_stream().to_string().replace(" . ", "."));
            quote!("{}", #text)
        } else {
            quote!(#(#message),*)
        };
        let span = condition.span();
        let condition = self.expr(condition);
        Some(quote_spanned!(span=> if ag::fails(#condition, || ag::format!(#message))? { ::core::panic!(#message) }))
    }
}

impl VisitMut for Lower {
    fn visit_expr_mut(&mut self, expr: &mut Expr) {
        let lowered = match &*expr {
            Expr::Binary(binary) if !super::analysis::binds(expr) => self.binary(binary),
            Expr::Unary(unary) => self.unary(unary),
            Expr::Macro(mac) => self.known_macro(&mac.mac),
            Expr::If(branch) => self.branch(branch),
            Expr::While(looping) => self.while_loop(looping),
            Expr::ForLoop(looping) => Some(self.for_loop(looping)),
            Expr::Loop(looping) => Some(self.forever(looping)),
            Expr::Return(exit) => self.return_expr(exit),
            Expr::Break(exit) => self.break_expr(exit),
            Expr::Continue(exit) => self.continue_expr(exit),
            Expr::Assign(assign) => self.assign(assign),
            Expr::Closure(closure) => Some(self.closure(closure)),
            Expr::Async(_) | Expr::Const(_) => return,
            _ => None,
        };
        match lowered {
            Some(tokens) => *expr = Expr::Verbatim(tokens),
            None => visit_mut::visit_expr_mut(self, expr),
        }
    }

    fn visit_block_mut(&mut self, block: &mut syn::Block) {
        let tokens = self.plain_block(&block.stmts);
        block.stmts = vec![syn::Stmt::Expr(Expr::Verbatim(tokens), None)];
    }

    fn visit_arm_mut(&mut self, arm: &mut syn::Arm) {
        self.scoped(super::analysis::names(&arm.pat), |this| {
            this.guard(&mut arm.pat);
            this.visit_expr_mut(&mut arm.body);
        });
    }

    fn visit_item_mut(&mut self, _: &mut syn::Item) {}
    fn visit_type_mut(&mut self, _: &mut syn::Type) {}
    fn visit_pat_mut(&mut self, _: &mut syn::Pat) {}
}
