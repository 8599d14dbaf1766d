{% set x = "a.b" | regex_replace('\\.', '-') %}
{{ x }}: test.nop
{{ ['p', 'q'] | yaml }}: test.nop
{{ 'word with spaces' | yaml_dquote }}: test.nop
{{ 'yes' | to_bool }} text: test.nop
{{ ('ab12' | regex_search('([0-9]+)')) [0] }}x: test.nop
{{ 'x' | md5 }}: test.nop
{{ 'x' | sha256 }}: test.nop
{{ 'some text' | uuid }}: test.nop
{{ [1, [2, [3]]] | flatten | join('-') }}: test.nop
{{ [1, 2] | union([2, 3]) | sum }}u: test.nop
{{ {'k': [1, None, True]} | json | yaml_dquote }}: test.nop
{{ 'it''s' | quote | yaml_dquote }}: test.nop
