{% for text in ['a', 'true', '1', '', "a'b", 'a: b', '2020-01-01', '12:30', '0644', 'a,b', '@x', 'no', '~',
                '-', '- a', 'a#b', 'a #b', '*a', 'a b', ' a', '1e3', '0x1f', '[a]', 'ü', '=', '<<', 'a:b'] %}
{{ ('number ' ~ loop.index ~ ' ' ~ (text | yaml) ~ ' ' ~ ([text] | yaml) ~ ' ' ~ ({'k': text} | yaml(False))) | json }}:
  test.nop: []
{% endfor %}
