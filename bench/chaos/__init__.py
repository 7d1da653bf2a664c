"""Kills things at random while jobs run, then reads the record: what was lost, repeated, or told twice?"""
