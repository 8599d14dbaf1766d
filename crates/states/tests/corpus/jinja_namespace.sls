{% set ns = namespace(count=0) %}
{% for i in range(3) %}{% set ns.count = ns.count + 1 %}{% endfor %}
count {{ ns.count }}: test.nop
