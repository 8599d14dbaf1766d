{% set ns = namespace(x=[]) %}{% for i in range(9) %}{% set ns.x = [ns.x] %}{% endfor %}
k: {test.nop: [{name: {{ ns.x | yaml }}}]}
