late:
  test.nop:
    - order: last
middle: test.nop
early:
  test.nop:
    - order: 1
first:
  test.nop:
    - order: first
negative:
  test.nop:
    - order: -1
more negative:
  test.nop:
    - order: -5
big:
  test.nop:
    - order: 50000
float:
  test.nop:
    - order: 1.5
