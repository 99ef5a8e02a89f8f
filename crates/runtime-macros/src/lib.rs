//! The attribute `main` of `completion-port-runtime`, which documents it.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Makes an `async fn main` the program's `main`, on a runtime with the default settings.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    if !arguments.is_empty() {
        return error("`main` takes no arguments: for other settings, use `Runtime::builder`");
    }
    expand(function).unwrap_or_else(error)
}

/// Puts the function into one of the same name and type that is not async.
fn expand(function: TokenStream) -> Result<TokenStream, &'static str> {
    const NOT_ASYNC: &str = "`main` goes on an `async fn` without parameters";
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let is = |token: &TokenTree, name: &str| matches!(token, TokenTree::Ident(ident) if ident.to_string() == name);
    let Some(at) = tokens.windows(2).position(|pair| is(&pair[0], "async") && is(&pair[1], "fn"))
    else {
        return Err(NOT_ASYNC);
    };
    let Some(TokenTree::Ident(name)) = tokens.get(at + 2).cloned() else { return Err(NOT_ASYNC) };
    match tokens.get(at + 3) {
        Some(TokenTree::Group(group))
            if group.delimiter() == Delimiter::Parenthesis && group.stream().is_empty() => {}
        _ => return Err(NOT_ASYNC),
    }
    let Some(TokenTree::Group(_)) = tokens.last() else { return Err(NOT_ASYNC) };
    // The attributes and the visibility stay outside, as does the signature without `async`.
    let inner: TokenStream = tokens[at..].iter().cloned().collect();
    tokens.remove(at);
    tokens.pop();
    let mut outer: TokenStream = tokens.into_iter().collect();
    let mut body = inner;
    let call: TokenStream = "::completion_port_runtime::Runtime::new()\
         .expect(\"a runtime can be started\").block_on"
        .parse()
        .map_err(|_| "the call of `block_on` is no expression")?;
    body.extend(call);
    let future = [
        TokenTree::Ident(Ident::new(&name.to_string(), Span::call_site())),
        TokenTree::Group(Group::new(Delimiter::Parenthesis, TokenStream::new())),
    ];
    body.extend([TokenTree::Group(Group::new(
        Delimiter::Parenthesis,
        future.into_iter().collect(),
    ))]);
    outer.extend([TokenTree::Group(Group::new(Delimiter::Brace, body))]);
    Ok(outer)
}

fn error(message: &str) -> TokenStream {
    format!("::core::compile_error!({message:?});").parse().unwrap_or_default()
}
