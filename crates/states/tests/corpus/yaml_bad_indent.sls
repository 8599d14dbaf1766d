one:
  test.nop:
    - name: x
   - bad
