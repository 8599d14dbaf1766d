//! Evaluates one expression to one value.

use super::{EvalResult, Evaluator, Stop, equal, error};
use crate::ast::{Call, CaseOption, Expression, If, Kind, Segment, UnaryOperator};
use crate::diagnostic::Diagnostic;
use crate::source::Span;
use crate::value::types::Type;
use crate::value::{Float, Hash, Value};

impl Evaluator<'_> {
    pub(crate) fn value(&mut self, expression: &Expression) -> EvalResult {
        self.work(1, expression.span)?;
        self.deeper(expression.span, |evaluator| evaluator.kind(expression))
    }

    fn kind(&mut self, expression: &Expression) -> EvalResult {
        let span = expression.span;
        match &expression.kind {
            Kind::Undef => Ok(Value::Undef),
            Kind::Default => Ok(Value::Default),
            Kind::Boolean(value) => Ok(Value::Boolean(*value)),
            Kind::Integer(value) => Ok(Value::Integer(*value)),
            Kind::Float(value) => Ok(Value::Float(Float(*value))),
            Kind::String(text) | Kind::Name(text) => Ok(Value::text(text)),
            Kind::Regex(pattern) => Ok(Value::Regex(pattern.as_str().into())),
            Kind::Interpolated(segments) => self.interpolated(segments, span),
            Kind::Variable(name) => self.variable(name, span),
            Kind::TypeName(_) => Ok(Value::Type(self.type_of(expression)?.into())),
            Kind::Array(items) => self.array_of(items, span),
            Kind::Hash(pairs) => self.hash_of(pairs, span),
            Kind::Unary(operator, operand) => self.unary(*operator, operand, span),
            Kind::Binary(operator, left, right) => self.binary(*operator, left, right, span),
            Kind::Access(target, keys) => self.access(target, keys, span),
            Kind::Selector(target, options) => self.selector(target, options, span),
            Kind::Call(call) => self.call(call, span),
            Kind::If(choice) => self.choice(choice),
            Kind::Case(target, options) => self.case(target, options),
            Kind::Assign(operator, target, value) => self.assign(*operator, target, value),
            Kind::Block(inner) => self.all(inner),
            Kind::Resource(resource) => self.resource(resource, span),
            _ => self.unfit(&expression.kind, span),
        }
    }

    /// Handles code for node catalogs, which this evaluator does not compile.
    fn unfit(&mut self, kind: &Kind, span: Span) -> EvalResult {
        let what = match kind {
            // Collected beforehand.
            Kind::Define(_) | Kind::Application(_) | Kind::Function(_) | Kind::TypeAlias(..) => {
                return Ok(Value::Undef);
            }
            Kind::Mapping(_) | Kind::Class(_) | Kind::Plan(_) => return Ok(Value::Undef),
            Kind::ResourceDefaults(..) => "defaults of resources",
            Kind::ResourceOverride(..) => "overrides of resources",
            Kind::Collector(_) => "collectors",
            Kind::Node(_) => "`node`",
            Kind::Site(_) => "`site`",
            _ => "this",
        };
        error(format!("{what} are not allowed here"), span)
    }

    fn interpolated(&mut self, segments: &[Segment], span: Span) -> EvalResult {
        let mut text = String::new();
        for segment in segments {
            match segment {
                Segment::Text(part) => {
                    text.push_str(part);
                }
                Segment::Expression(inner) => {
                    let value = self.value(inner)?;
                    self.append(&mut text, &value, inner.span)?;
                }
            }
        }
        self.string(text, span)
    }

    fn variable(&mut self, name: &str, span: Span) -> EvalResult {
        if name.bytes().all(|byte| byte.is_ascii_digit()) {
            let number = name.parse().unwrap_or(usize::MAX);
            return Ok(self.scopes.matched(number).cloned().unwrap_or(Value::Undef));
        }
        if let Some(value) = self.scopes.get(name) {
            return Ok(value.clone());
        }
        let problem = Diagnostic::new(format!("`${name}` has no value here"), span)
            .near(name, self.scopes.names());
        // One note says that the node's facts are unknown, unless this is a typing mistake.
        let slip = problem.hint.is_some() && !name.starts_with("::");
        if self.lenient && !slip {
            self.missed_facts = true;
        } else {
            self.note(problem);
        }
        Ok(Value::Undef)
    }

    /// Records a note, once per place.
    pub(crate) fn note(&mut self, note: Diagnostic) {
        const MOST: usize = 1_000;
        let known = self
            .notes
            .iter()
            .any(|one| one.span == note.span && one.message == note.message);
        if !known && self.notes.len() < MOST {
            self.notes.push(note);
        }
    }

    fn array_of(&mut self, items: &[Expression], span: Span) -> EvalResult {
        let mut values = Vec::with_capacity(items.len());
        for item in items {
            self.spread(item, &mut values)?;
        }
        self.array(values, span)
    }

    /// Adds a value, or all of its elements if it is marked with `*`.
    pub(crate) fn spread(&mut self, item: &Expression, values: &mut Vec<Value>) -> EvalResult<()> {
        match &item.kind {
            Kind::Unary(UnaryOperator::Splat, operand) => match self.value(operand)? {
                Value::Array(list) => values.extend(list.items.iter().cloned()),
                Value::Undef => {}
                other => values.push(other),
            },
            _ => values.push(self.value(item)?),
        }
        self.sized(values.len(), item.span)
    }

    fn hash_of(&mut self, pairs: &[(Expression, Expression)], span: Span) -> EvalResult {
        let mut entries = Hash::with_capacity(pairs.len());
        for (key, value) in pairs {
            let key = self.value(key)?;
            let value = self.value(value)?;
            entries.insert(key, value);
        }
        self.hash(entries, span)
    }

    fn choice(&mut self, choice: &If) -> EvalResult {
        let holds = self.value(&choice.condition)?.is_true();
        if holds != choice.negated {
            self.all(&choice.then)
        } else {
            self.all(&choice.otherwise)
        }
    }

    fn case(&mut self, target: &Expression, options: &[CaseOption]) -> EvalResult {
        let value = self.value(target)?;
        let mut fallback = None;
        for option in options {
            for candidate in &option.values {
                if matches!(candidate.kind, Kind::Default) {
                    fallback = fallback.or(Some(&option.body));
                } else if self.selects(&value, candidate)? {
                    return self.all(&option.body);
                }
            }
        }
        fallback.map_or(Ok(Value::Undef), |body| self.all(body))
    }

    fn selector(
        &mut self,
        target: &Expression,
        options: &[(Expression, Expression)],
        span: Span,
    ) -> EvalResult {
        let value = self.value(target)?;
        let mut fallback = None;
        for (candidate, result) in options {
            if matches!(candidate.kind, Kind::Default) {
                fallback = fallback.or(Some(result));
            } else if self.selects(&value, candidate)? {
                return self.value(result);
            }
        }
        match fallback {
            Some(result) => self.value(result),
            None => {
                let message = format!("no option matches {}", super::bind::shown(&value));
                Err(Diagnostic::new(message, span)
                    .hint("add `default => …`")
                    .into())
            }
        }
    }

    /// Returns true if this option matches: equal, matching, of that type, or one of a list.
    fn selects(&mut self, value: &Value, candidate: &Expression) -> EvalResult<bool> {
        if let Kind::Unary(UnaryOperator::Splat, operand) = &candidate.kind {
            return match self.value(operand)? {
                Value::Array(list) => {
                    let mut items = list.items.iter();
                    let fits = items.any(|item| self.fits(value, item, candidate.span));
                    Ok(fits)
                }
                other => Ok(self.fits(value, &other, candidate.span)),
            };
        }
        let wanted = self.value(candidate)?;
        Ok(self.fits(value, &wanted, candidate.span))
    }

    fn fits(&mut self, value: &Value, wanted: &Value, span: Span) -> bool {
        match (wanted, value) {
            (Value::Regex(pattern), Value::String(text)) => {
                self.matches(pattern, text, span).unwrap_or(false)
            }
            (Value::Type(of), value) => match value {
                Value::Type(other) => of == other,
                value => of.accepts(value),
            },
            (wanted, value) => equal(value, wanted),
        }
    }

    /// Implements `=~` with a pattern. Sets `$0`, `$1`, ….
    pub(super) fn matches(&mut self, pattern: &str, text: &str, span: Span) -> EvalResult<bool> {
        let regex = match crate::pattern::regex(pattern) {
            Ok(regex) => regex,
            Err(_) => return error("invalid regular expression", span),
        };
        self.work(text.len() / 64 + 1, span)?;
        let Some(found) = regex.captures(text) else {
            return Ok(false);
        };
        let groups = found
            .iter()
            .map(|group| group.map_or(Value::Undef, |group| Value::text(group.as_str())));
        self.scopes.set_matches(groups.collect());
        Ok(true)
    }

    fn unary(&mut self, operator: UnaryOperator, operand: &Expression, span: Span) -> EvalResult {
        let value = self.value(operand)?;
        match (operator, value) {
            (UnaryOperator::Not, value) => Ok(Value::Boolean(!value.is_true())),
            (UnaryOperator::Negate, Value::Integer(number)) => match number.checked_neg() {
                Some(negative) => Ok(Value::Integer(negative)),
                None => error("this number is too large", span),
            },
            (UnaryOperator::Negate, Value::Float(Float(number))) => {
                Ok(Value::Float(Float(-number)))
            }
            (UnaryOperator::Negate, other) => {
                error(format!("`-` takes a number, not {}", other.kind()), span)
            }
            (UnaryOperator::Splat, Value::Hash(table)) => {
                let mut pairs = Vec::with_capacity(table.entries.len());
                for (key, value) in &table.entries {
                    pairs.push(self.array(vec![key.clone(), value.clone()], span)?);
                }
                self.array(pairs, span)
            }
            (UnaryOperator::Splat, value @ Value::Array(_)) => Ok(value),
            (UnaryOperator::Splat, value) => self.array(vec![value], span),
        }
    }

    fn call(&mut self, call: &Call, span: Span) -> EvalResult {
        let mut arguments = Vec::with_capacity(call.arguments.len() + 1);
        if let Some(callee) = &call.callee {
            arguments.push(self.value(callee)?);
        }
        for argument in &call.arguments {
            self.spread(argument, &mut arguments)?;
        }
        match call.name.as_str() {
            "next" => return Err(Stop::Next(first(arguments), span)),
            "return" => return Err(Stop::Return(first(arguments), span)),
            "break" => return Err(Stop::Break(span)),
            _ => {}
        }
        super::functions::call(self, call, arguments, span)
    }

    /// Returns the type that an expression names.
    pub(crate) fn type_of(&mut self, expression: &Expression) -> EvalResult<Type> {
        match &expression.kind {
            Kind::TypeName(name) => self.named_type(name, expression.span),
            _ => match self.value(expression)? {
                Value::Type(of) => Ok((*of).clone()),
                Value::Reference(reference) => {
                    Ok(Type::Resource(Some(reference.type_name.as_str().into())))
                }
                other => error(
                    format!("expected a type, not {}", other.kind()),
                    expression.span,
                ),
            },
        }
    }
}

fn first(values: Vec<Value>) -> Value {
    values.into_iter().next().unwrap_or(Value::Undef)
}
