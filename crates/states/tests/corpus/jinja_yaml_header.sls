#!jinja|yaml
{{ 'rendered' }}: test.nop
