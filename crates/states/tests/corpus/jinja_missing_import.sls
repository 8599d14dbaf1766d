{% from 'lib/nothing.jinja' import x %}
one: test.nop
