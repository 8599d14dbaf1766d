{% if %}
one: test.nop
