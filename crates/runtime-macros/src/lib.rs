//! The attribute `main` of `completion-port-runtime`, which documents it.

use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};

/// Makes an `async fn` an ordinary function that runs on its own runtime.
#[proc_macro_attribute]
pub fn main(arguments: TokenStream, function: TokenStream) -> TokenStream {
    match settings(arguments) {
        Ok(settings) => expand(function.clone(), &settings)
            // The function stays, so that the compiler reports no missing `main` in addition.
            .unwrap_or_else(|error| {
                [error.report(), without_async(function)].into_iter().collect()
            }),
        Err(error) => [error.report(), without_async(function)].into_iter().collect(),
    }
}

/// A message for the author of the function, and where it belongs.
struct Error {
    at: Span,
    message: String,
}

impl Error {
    fn new(at: Option<&TokenTree>, message: impl Into<String>) -> Self {
        let at = at.map_or_else(Span::call_site, TokenTree::span);
        Self { at, message: message.into() }
    }

    fn report(&self) -> TokenStream {
        let code = format!("::core::compile_error!({:?});", self.message);
        let tokens: TokenStream = code.parse().unwrap_or_default();
        tokens.into_iter().map(|token| spanned(token, self.at)).collect()
    }
}

/// Moves a token and what it contains to another place of the source.
fn spanned(mut token: TokenTree, at: Span) -> TokenTree {
    if let TokenTree::Group(group) = &token {
        let inner = group.stream().into_iter().map(|token| spanned(token, at)).collect();
        token = TokenTree::Group(Group::new(group.delimiter(), inner));
    }
    token.set_span(at);
    token
}

/// The arguments of the attribute.
struct Settings {
    /// The path of the crate.
    runtime: TokenStream,
    /// The calls on the builder.
    calls: TokenStream,
}

const KNOWN: &str = "`main` knows the arguments `concurrency`, `thread_limit`, `thread_name`, \
                     `thread_stack_size` and `crate`, each as `name = value`; for other settings, \
                     use `Runtime::builder`";

fn settings(arguments: TokenStream) -> Result<Settings, Error> {
    let mut settings = Settings {
        runtime: "::completion_port_runtime".parse().unwrap_or_default(),
        calls: TokenStream::new(),
    };
    let mut seen: Vec<String> = Vec::new();
    let mut tokens = arguments.into_iter();
    while let Some(token) = tokens.next() {
        let TokenTree::Ident(name) = &token else { return Err(Error::new(Some(&token), KNOWN)) };
        let text = name.to_string();
        let is_builders =
            ["concurrency", "thread_limit", "thread_name", "thread_stack_size"].contains(&&*text);
        if !is_builders && text != "crate" {
            return Err(Error::new(Some(&token), KNOWN));
        }
        if seen.contains(&text) {
            return Err(Error::new(Some(&token), format!("`{text}` is given twice")));
        }
        match tokens.next() {
            Some(TokenTree::Punct(sign)) if sign.as_char() == '=' => {}
            _ => return Err(Error::new(Some(&token), format!("write `{text} = value`"))),
        }
        let value: TokenStream = tokens
            .by_ref()
            .take_while(|it| !matches!(it, TokenTree::Punct(sign) if sign.as_char() == ','))
            .collect();
        if value.is_empty() {
            return Err(Error::new(Some(&token), format!("write `{text} = value`")));
        }
        if is_builders {
            settings.calls.extend(".".parse::<TokenStream>().unwrap_or_default());
            settings.calls.extend([token, group(Delimiter::Parenthesis, value)]);
        } else {
            settings.runtime = value;
        }
        seen.push(text);
    }
    Ok(settings)
}

fn is(token: Option<&TokenTree>, name: &str) -> bool {
    matches!(token, Some(TokenTree::Ident(ident)) if ident.to_string() == name)
}

fn group(delimiter: Delimiter, tokens: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(delimiter, tokens))
}

/// Puts the function into one of the same name and type that is not async. Attributes, comments and
/// the visibility stay outside.
fn expand(function: TokenStream, settings: &Settings) -> Result<TokenStream, Error> {
    let mut tokens: Vec<TokenTree> = function.into_iter().collect();
    let at = check(&tokens)?;
    let Some(TokenTree::Ident(name)) = tokens.get(at + 2).cloned() else {
        return Err(Error::new(None, "`main` goes on an `async fn`"));
    };
    let mut body: TokenStream = tokens[at..].iter().cloned().collect();
    tokens.remove(at);
    tokens.pop();
    let mut outer: TokenStream = tokens.into_iter().collect();
    body.extend(settings.runtime.clone());
    body.extend("::Runtime::builder()".parse::<TokenStream>().unwrap_or_default());
    body.extend(settings.calls.clone());
    let run = ".build().expect(\"the system can start a runtime\").block_on";
    body.extend(run.parse::<TokenStream>().unwrap_or_default());
    let future = [
        TokenTree::Ident(Ident::new(&name.to_string(), Span::call_site())),
        group(Delimiter::Parenthesis, TokenStream::new()),
    ];
    body.extend([group(Delimiter::Parenthesis, future.into_iter().collect())]);
    outer.extend([group(Delimiter::Brace, body)]);
    Ok(outer)
}

/// Returns where `async` is, in front of `fn`, a name, empty parentheses, the return type and the
/// body.
fn check(tokens: &[TokenTree]) -> Result<usize, Error> {
    let Some(function) = tokens.iter().position(|token| is(Some(token), "fn")) else {
        return Err(Error::new(tokens.first(), "`main` goes on an `async fn`"));
    };
    let qualifiers = ["const", "unsafe", "extern"];
    let is_qualified = |token: &TokenTree| qualifiers.iter().any(|name| is(Some(token), name));
    if let Some(token) = tokens[..function].iter().find(|token| is_qualified(token)) {
        return Err(Error::new(Some(token), format!("the function of `main` can't be `{token}`")));
    }
    if function == 0 || !is(tokens.get(function - 1), "async") {
        let message = "the function of `main` must be `async`: without it, it needs no runtime";
        return Err(Error::new(tokens.get(function), message));
    }
    match tokens.get(function + 2) {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Parenthesis => {
            if let Some(token) = group.stream().into_iter().next() {
                let message = "the function of `main` takes no parameters: nobody would pass them";
                return Err(Error::new(Some(&token), message));
            }
        }
        token => {
            let message = "the function of `main` can't be generic: nobody would choose the types";
            return Err(Error::new(token, message));
        }
    }
    if let Some(token) = tokens.iter().find(|token| is(Some(token), "where")) {
        let message = "the function of `main` can't be generic: it needs no `where`";
        return Err(Error::new(Some(token), message));
    }
    match tokens.last() {
        Some(TokenTree::Group(group)) if group.delimiter() == Delimiter::Brace => Ok(function - 1),
        token => Err(Error::new(token, "the function of `main` needs a body")),
    }
}

/// A function of the same name without parameters or contents, in addition to the reported error.
fn without_async(function: TokenStream) -> TokenStream {
    let mut tokens = function.into_iter();
    let is_function = tokens.by_ref().any(|token| is(Some(&token), "fn"));
    match tokens.next() {
        Some(TokenTree::Ident(name)) if is_function => {
            format!("fn {name}() {{}}").parse().unwrap_or_default()
        }
        _ => TokenStream::new(),
    }
}
