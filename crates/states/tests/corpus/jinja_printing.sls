{{ [True, None, 1.0, 'a'] | string | yaml_dquote }}: test.nop
{{ {'a': 'b', 'c': "d'e"} | string | yaml_dquote }}: test.nop
list:
  test.nop:
    - names: {{ ['one', 'two'] }}
