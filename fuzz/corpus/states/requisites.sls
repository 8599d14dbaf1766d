a:
  test.nop:
    - order: last
    - watch_in: [{test: b}]
b:
  test.nop:
    - onchanges_any: [{test: a}]
include: [other]
extend:
  other:
    test:
      - name: x
