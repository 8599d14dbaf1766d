{% set names = [] %}
{% for name in ['x', 'y'] %}
{% do names.append(name ~ '1') %}
{% endfor %}
{% for name in names %}
{{ name }}: test.nop
{% endfor %}
