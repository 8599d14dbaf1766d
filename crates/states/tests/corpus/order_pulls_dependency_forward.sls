a:
  test.nop:
    - require:
      - test: z
b: test.nop
c: test.nop
z: test.nop
