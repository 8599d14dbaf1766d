{% for i in range(3) %}
x{{ i }}: {test.nop: [{name: {{ i | json }}}]}
{% endfor %}
{% macro m(a, b=2) %}{{ a ~ b }}{% endmacro %}
"{{ m(1) }}": {cmd.run: [{name: "true"}]}
