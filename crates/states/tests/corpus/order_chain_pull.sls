x:
  test.nop:
    - require:
      - test: y
m1: test.nop
m2: test.nop
y:
  test.nop:
    - require:
      - test: z
m3: test.nop
z: test.nop
